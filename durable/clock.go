package durable

import "time"

// Clock tells the time and makes timers. Tests put a virtual one in
// [Options].Clock; with testing/synctest the default is virtual already.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f on a goroutine of its own once d has passed.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call that is to come.
type Timer interface {
	// Stop prevents the call and reports whether it did.
	Stop() bool
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// stamp is a time as it is stored: UTC, whole milliseconds.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
