package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

type event struct{ Type, Data string }

func readAll(r *Reader) ([]event, error) {
	var all []event
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, event{ev.Type, string(ev.Data)})
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	tests := []struct {
		name string
		in   string
		want []event
	}{
		{"line feeds", "event: a\ndata: 1\n\ndata: 2\n\n", []event{{"a", "1"}, {"", "2"}}},
		{"carriage returns", "event: a\rdata: 1\r\rdata: 2\r\r", []event{{"a", "1"}, {"", "2"}}},
		{"both", "event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", []event{{"a", "1"}, {"", "2"}}},
		{"mixed ends", "event: a\rdata: 1\n\r\ndata: 2\r\n\n", []event{{"a", "1"}, {"", "2"}}},
		{"several data lines", "data: 1\ndata:\ndata:  2\n\n", []event{{"", "1\n\n 2"}}},
		{"no space after the colon", "data:{\"a\": 1}\n\n", []event{{"", `{"a": 1}`}}},
		{"comments and unknown fields are skipped", ": OPENROUTER PROCESSING\n\nid: 7\nretry: 10\nfoo\ndata: 1\n\n", []event{{"", "1"}}},
		{"events without data are skipped", "event: ping\n\ndata\n\nevent: a\ndata: 1\n\n", []event{{"a", "1"}}},
		{"the last event field wins", "event: a\nevent: b\ndata: 1\n\n", []event{{"b", "1"}}},
		{"byte order mark", "\xef\xbb\xbfdata: 1\n\n", []event{{"", "1"}}},
		{"byte order mark later is data", "data: \xef\xbb\xbf\n\n", []event{{"", "\xef\xbb\xbf"}}},
		{"line over 64 KiB", "data: " + long + "\n\n", []event{{"", long}}},
		{"an event cut off by the end is dropped", "data: 1\n\ndata: 2\n", []event{{"", "1"}}},
		{"a line cut off by the end is dropped", "data: 1\n\ndata: 2", []event{{"", "1"}}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := readAll(NewReader(strings.NewReader(tt.in)))
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			got, err = readAll(NewReader(iotest.OneByteReader(strings.NewReader(tt.in))))
			require.NoError(t, err)
			require.Equal(t, tt.want, got, "one byte per read")
		})
	}
}

func TestReader_ReturnsAnEventBeforeMoreIsRead(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"data: 1\r\r", "data: 1\n\n", "data: 1\r\n\r"} {
		// After the blank line a read would block for ever.
		r := NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(errors.New("read too far"))))
		ev, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, "1", string(ev.Data))
	}
}

func TestReader_Limit(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"one line without an end": strings.Repeat("x", 200),
		"one long data line":      "data: " + strings.Repeat("x", 200) + "\n\n",
		"many data lines":         strings.Repeat("data: 0123456789\n", 20) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewReader(strings.NewReader(in))
			r.max = 100
			_, err := r.Next()
			require.ErrorIs(t, err, ErrEventTooLarge)
			_, err = r.Next()
			require.ErrorIs(t, err, ErrEventTooLarge, "it stays failed")
		})
	}
	require.Equal(t, 64<<20, NewReader(nil).max)
}

func TestReader_PassesErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("data: 1\n\nda"), iotest.ErrReader(broken)))
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{"data: 1\n\n", "event: a\r\ndata: 1\r\ndata: 2\r\n\r\n", "\xef\xbb\xbfdata:x\r\r:c\r\n", "data\n\n\n", "data: a\rdata: b\n\r"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		whole, err := readAll(NewReader(bytes.NewReader(in)))
		require.NoError(t, err)
		pieces, err := readAll(NewReader(&stepReader{in, max(step, 1)}))
		require.NoError(t, err)
		require.Equal(t, whole, pieces, "how the bytes arrive changes nothing")
		for _, ev := range whole {
			require.NotEmpty(t, ev.Data)
			require.NotContains(t, ev.Type, "\n")
		}
	})
}

// stepReader gives at most n bytes per read.
type stepReader struct {
	left []byte
	n    int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(r.n, len(p))], r.left)
	r.left = r.left[n:]
	return n, nil
}
