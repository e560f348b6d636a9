// Package config is the server's configuration: one table of variables, from
// which the command-line flags, --help and the check at start are made (S1.2),
// and the limits of S7.
//
// It depends on nothing of this module and reads no file and no environment by
// itself: values come from a function, so that secrets that have left the
// environment are found too.
package config
