//go:build !linux

package isolationtest

import "testing"

// UIDs returns user ids as the option AgentUIDs takes them. No level of this
// system uses any.
func UIDs(testing.TB, int) string { return "61337" }

// Reserve is UIDs as the first number.
func Reserve(testing.TB, int) int { return 61337 }
