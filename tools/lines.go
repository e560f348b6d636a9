package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// lineReader reads a file line by line in little memory, however long its
// lines are.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the line that was read last
}

func newLineReader(ctx context.Context, r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(contextReader{ctx, r}, 64<<10)}
}

// next reads the next line: the first bytes of it, at most keep, and its
// length, both without the newline. The line is valid until the next call. At
// the end it returns [io.EOF].
func (l *lineReader) next(keep int) (line []byte, length int64, err error) {
	part, err := l.r.ReadSlice('\n')
	if err == nil { // a whole line in one piece
		l.number++
		part = part[:len(part)-1]
		return part[:min(keep, len(part))], int64(len(part)), nil
	}
	for {
		if room := keep - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		length += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		part, err = l.r.ReadSlice('\n')
	}
	switch {
	case err == nil:
		length--
		line = line[:min(int64(len(line)), length)]
	case !errors.Is(err, io.EOF):
		return nil, 0, err
	case length == 0:
		return nil, 0, io.EOF
	}
	l.number++
	return line, length, nil
}

// rest counts the lines that follow. It gives up after about limit bytes, with
// all false.
func (l *lineReader) rest(limit int64) (lines int64, all bool, err error) {
	buf := make([]byte, 64<<10)
	open := false
	for limit > 0 {
		n, err := l.r.Read(buf)
		if n > 0 {
			lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
			open = buf[n-1] != '\n'
			limit -= int64(n)
		}
		if errors.Is(err, io.EOF) {
			if open {
				lines++
			}
			return lines, true, nil
		}
		if err != nil {
			return lines, false, err
		}
	}
	return lines, false, nil
}

// contextReader ends with the error of ctx once it is cancelled.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
