package isolation

import (
	"fmt"
	"strconv"
	"strings"
)

// uidRange is the user ids that commands run as. With a single one, all trees
// share it.
type uidRange struct{ first, last int }

// The bounds of [Options.AgentUIDs]: user ids of no system service that every
// kernel and file system takes. 65534, nobody, cannot be among them.
const (
	MinAgentUID = 1000
	MaxAgentUID = 1<<31 - 2
)

// CheckAgentUIDs reports what is wrong with a value of [Options.AgentUIDs], as
// [Open] would.
func CheckAgentUIDs(s string) error {
	_, err := parseRange(s)
	return err
}

// parseRange reads "61337" or "61000-61999".
func parseRange(s string) (uidRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	a, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return uidRange{}, fmt.Errorf("%q is neither a user id nor a range first-last", s)
	}
	b := a
	if isRange {
		if b, err = strconv.Atoi(strings.TrimSpace(last)); err != nil {
			return uidRange{}, fmt.Errorf("%q is neither a user id nor a range first-last", s)
		}
	}
	switch {
	case a < MinAgentUID || b > MaxAgentUID:
		return uidRange{}, fmt.Errorf("%q is not between %d and %d", s, MinAgentUID, MaxAgentUID)
	case b < a:
		return uidRange{}, fmt.Errorf("%q ends before it begins", s)
	case a <= nobody && nobody <= b:
		return uidRange{}, fmt.Errorf("%q contains %d, which is nobody", s, nobody)
	}
	return uidRange{a, b}, nil
}

const nobody = 65534

func (r uidRange) single() bool          { return r.first == r.last }
func (r uidRange) contains(uid int) bool { return r.first <= uid && uid <= r.last }

func (r uidRange) String() string {
	if r.single() {
		return strconv.Itoa(r.first)
	}
	return fmt.Sprintf("%d-%d", r.first, r.last)
}
