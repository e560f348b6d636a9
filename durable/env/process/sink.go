//go:build unix

package process

import (
	"errors"
	"os"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
)

const (
	chunkBytes = 32 << 10
	// pipeBytes is at least what a pipe can hold: Linux lets an ordinary
	// process make one this large, other systems keep far less in one.
	pipeBytes = 1 << 20
)

// sink takes the output of both streams, one piece at a time.
type sink struct {
	mu     sync.Mutex
	output func(stream env.Stream, text string, skippedBytes, skippedLines int64)
	spill  *spill // nil for none
}

func newSink(c *Command, req env.ExecRequest) (*sink, error) {
	s := &sink{output: req.Output}
	var err error
	s.spill, err = newSpill(c.SpillDir, req.Spill)
	return s, err
}

func (s *sink) write(stream env.Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spill.write(p)
	if s.output != nil {
		s.output(stream, string(p), 0, 0)
	}
}

// read passes on what comes from r until its end, or until r's deadline and
// what was in the pipe then. A piece ends at a character where it can, so that
// the other stream's text does not come between the bytes of one.
func read(r *os.File, stream env.Stream, out *sink) {
	buf := make([]byte, chunkBytes)
	held := 0
	take := func(n int) {
		whole := completeText(buf[:held+n])
		out.write(stream, buf[:whole])
		held = copy(buf, buf[whole:held+n])
	}
	for {
		n, err := r.Read(buf[held:])
		take(n)
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			for left := pipeBytes; left > 0; {
				n := readNow(r, buf[held:])
				if n <= 0 {
					break
				}
				take(n)
				left -= n
			}
		}
		out.write(stream, buf[:held])
		return
	}
}

// readNow reads what is there without waiting; it returns 0 or less when
// nothing is.
func readNow(r *os.File, p []byte) int {
	conn, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	err = conn.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), p); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return 0
	}
	return n
}

// completeText returns the length of p without an incomplete UTF-8 sequence at
// its end.
func completeText(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}
