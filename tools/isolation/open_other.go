//go:build !linux

package isolation

import (
	"context"
	"fmt"
	"runtime"

	"github.com/wp-durable/wp-durable/durable/env"
)

// host does not exist on this system.
type host struct{}

func open(_ context.Context, _ Options) (*Manager, error) {
	reason := fmt.Sprintf("commands cannot be isolated on %s; run the server's container image instead", runtime.GOOS)
	return &Manager{status: Status{Level: None, State: Off, Reason: reason}}, nil
}

func (*host) env(int64, int64) (env.Environment, error)         { panic("no level on this system") }
func (*host) remove(context.Context, int64) error               { panic("no level on this system") }
func (*host) size(context.Context, int64) (int64, int64, error) { panic("no level on this system") }
func (*host) close() error                                      { panic("no level on this system") }
