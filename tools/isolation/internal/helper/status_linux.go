package helper

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The five capability sets as /proc names them.
var capSets = [5]string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}

// Status is what the kernel says of a process's rights.
type Status struct {
	UIDs, GIDs [4]int // real, effective, saved, file system
	Groups     []int
	Caps       [5]uint64 // inheritable, permitted, effective, bounding, ambient
	NoNewPrivs bool
	Seccomp    int // 2 with a filter
	Threads    int
	Dead       bool // no thread runs any more
}

func readStatus(path string) (Status, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Status{}, err
	}
	return parseStatus(string(b))
}

func parseStatus(text string) (Status, error) {
	var s Status
	found, state := 0, ""
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		fields := strings.Fields(value)
		switch key {
		case "Uid", "Gid":
			if len(fields) != 4 {
				return Status{}, fmt.Errorf("status line %q", line)
			}
			ids := &s.UIDs
			if key == "Gid" {
				ids = &s.GIDs
			}
			for i, f := range fields {
				n, err := strconv.Atoi(f)
				if err != nil {
					return Status{}, fmt.Errorf("status line %q: %w", line, err)
				}
				ids[i] = n
			}
			found++
		case "Groups":
			for _, f := range fields {
				n, err := strconv.Atoi(f)
				if err != nil {
					return Status{}, fmt.Errorf("status line %q: %w", line, err)
				}
				s.Groups = append(s.Groups, n)
			}
			found++
		case "NoNewPrivs":
			s.NoNewPrivs = strings.TrimSpace(value) == "1"
			found++
		case "State":
			if len(fields) > 0 {
				state = fields[0]
			}
		case "Seccomp":
			s.Seccomp, _ = strconv.Atoi(strings.TrimSpace(value))
		case "Threads":
			s.Threads, _ = strconv.Atoi(strings.TrimSpace(value))
		default:
			for i, name := range capSets {
				if key != name {
					continue
				}
				n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
				if err != nil {
					return Status{}, fmt.Errorf("status line %q: %w", line, err)
				}
				s.Caps[i] = n
				found++
			}
		}
	}
	if want := 2 + 1 + 1 + len(capSets); found != want {
		return Status{}, fmt.Errorf("status has %d of %d lines", found, want)
	}
	s.Dead = isDead(state, s.Threads)
	return s, nil
}
