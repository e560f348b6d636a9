package helper

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The configurations by ABI version, newest last. Network rights are left out:
// where commands have no network, the system call filter shuts sockets.
var landlockVersions = []landlock.Config{
	{}, landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
	landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

// ScopeABI is the first Landlock that keeps signals and abstract sockets within
// a call.
const ScopeABI = 6

// UnixABI is the first Landlock that bounds which sockets of the file system a
// command may connect to.
const UnixABI = 9

// LandlockABI is the version of Landlock that the kernel offers, 0 for none.
func LandlockABI() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil || v < 0 {
		return 0
	}
	return v
}

func (d *descent) landlock() error {
	if d.Landlock == nil {
		return nil
	}
	l, abi := d.Landlock, LandlockABI()
	if abi < l.MinABI {
		return fmt.Errorf("the kernel has ABI %d, %d is needed", abi, l.MinABI)
	}
	config := landlockVersions[min(abi, len(landlockVersions)-1)]
	config.HandledAccessNet = 0
	var rules []landlock.Rule
	if l.FS {
		for _, path := range l.ReadOnly {
			info, err := os.Stat(path)
			switch {
			case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
				continue
			case err != nil:
				return err
			case info.IsDir():
				rules = append(rules, landlock.RODirs(path))
			default:
				rules = append(rules, landlock.ROFiles(path))
			}
		}
		for _, path := range l.ReadWrite {
			r := landlock.RWDirs(path)
			if abi >= 2 {
				r = r.WithRefer()
			}
			if abi >= UnixABI {
				r = r.WithResolveUnix()
			}
			rules = append(rules, r)
		}
		for _, path := range l.Devices {
			if _, err := os.Stat(path); err != nil {
				continue
			}
			r := landlock.RWFiles(path)
			if abi >= 5 {
				r = r.WithIoctlDev()
			}
			rules = append(rules, r)
		}
	} else {
		config.HandledAccessFS = 0
	}
	fd, flags, err := config.NewRulesetFD(rules...)
	if err != nil {
		return err
	}
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	return ll.LandlockRestrictSelf(fd, flags)
}
