//go:build !linux

package helper

// Main does nothing on this system: no level of isolation works here.
func Main() {}

// Hooked tells whether Main was called in this process.
func Hooked() bool { return true }
