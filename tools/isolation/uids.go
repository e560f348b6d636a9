package isolation

import (
	"fmt"
	"strconv"
	"strings"
)

// uidRange is the user ids that commands run as. With a single one, all trees
// share it.
type uidRange struct{ first, last int }

// The ids of a range are those of no person and no system service.
const (
	minUID = 1000
	maxUID = 1<<31 - 2
)

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
	case a < minUID || b > maxUID:
		return uidRange{}, fmt.Errorf("%q is not between %d and %d", s, minUID, maxUID)
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
