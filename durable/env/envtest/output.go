package envtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

// numbers is a command that prints n numbered lines, and numbered is them.
func numbers(n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done", n)
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

var outputTests = map[string]func(t *testing.T, h *Harness){
	"streams": func(t *testing.T, h *Harness) {
		var out, err strings.Builder
		_, _, e := exec(limited(t), h, env.ExecRequest{
			Command: numbers(300) + "; (" + numbers(300) + ") >&2",
			Output: func(s env.Stream, text string, _, _ int64) {
				if s == env.Stderr {
					err.WriteString(text)
				} else {
					out.WriteString(text)
				}
			},
		})
		require.NoError(t, e)
		requireText(t, numbered(300), out.String())
		requireText(t, numbered(300), err.String())
	},

	"order of both streams": func(t *testing.T, h *Harness) {
		out, _, err := exec(limited(t), h, env.ExecRequest{
			Command: "i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); echo line $i >&2; i=$((i+1)); done", Merge: true,
		})
		require.NoError(t, err)
		if h.Merges {
			requireText(t, numbered(1000), out)
		} else {
			require.Len(t, out, len(numbered(1000)))
		}
	},

	"it comes while the command runs": func(t *testing.T, h *Harness) {
		ctx := limited(t)
		_, res, err := exec(ctx, h, env.ExecRequest{
			Command: "echo ready; until [ -e seen ]; do sleep 0.01; done",
			Output: func(_ env.Stream, text string, _, _ int64) {
				if err := h.Env.Write(ctx, "seen", strings.NewReader(text), env.WriteOptions{}); err != nil {
					t.Errorf("write: %v", err)
				}
			},
		})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)
	},

	"one call of Output at a time, none after the end": func(t *testing.T, h *Harness) {
		var inside, calls atomic.Int32
		var ended atomic.Bool
		_, err := h.Env.Exec(limited(t), env.ExecRequest{
			Command: "(" + numbers(2000) + ") & (" + numbers(2000) + ") >&2; wait; (while :; do echo left; done) & echo last",
			Output: func(_ env.Stream, text string, _, _ int64) {
				if inside.Add(1) != 1 || ended.Load() {
					t.Error("Output called at a wrong time")
				}
				calls.Add(1)
				inside.Add(-1)
			},
		})
		ended.Store(true)
		require.NoError(t, err)
		require.Positive(t, calls.Load())
		run(t, h, "sleep 0.2") // time for what should not come
	},

	"nobody listens": func(t *testing.T, h *Harness) {
		res, err := h.Env.Exec(limited(t), env.ExecRequest{Command: "head -c 1000000 /dev/zero; exit 4"})
		require.NoError(t, err)
		require.Equal(t, 4, res.ExitCode)
	},

	"10 MB": func(t *testing.T, h *Harness) {
		const line, n = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n", 160000
		want := sha256.Sum256([]byte(strings.Repeat(line, n)))
		hash := sha256.New()
		_, _, err := exec(limited(t), h, env.ExecRequest{
			Command: fmt.Sprintf("yes %s | head -n %d", strings.TrimSpace(line), n),
			Output:  func(_ env.Stream, text string, _, _ int64) { hash.Write([]byte(text)) },
		})
		require.NoError(t, err)
		require.Equal(t, want[:], hash.Sum(nil))
	},

	// (E10.7)
	"with a window, text and counts are those of a full transfer": func(t *testing.T, h *Harness) {
		opts := &env.OutputOptions{MaxBytes: 5000, MaxLines: 1 << 20}
		for _, n := range []int{10, 500, 20000} {
			full, part := env.NewOutput(opts), env.NewOutput(opts)
			_, err := full.Write([]byte(numbered(n)))
			require.NoError(t, err)
			_, err = h.Env.Exec(limited(t), env.ExecRequest{Command: numbers(n), Window: part.Window(), Output: part.Receive})
			require.NoError(t, err)
			requireText(t, full.String(), part.String())
			require.Equal(t, full.Counts(), part.Counts())
		}
	},

	"a split UTF-8 sequence stays whole": func(t *testing.T, h *Harness) {
		o := env.NewOutput(nil)
		_, err := h.Env.Exec(limited(t), env.ExecRequest{
			Command: `printf 'a\342'; sleep 0.1; printf 'x' >&2; sleep 0.1; printf '\202\254b\360\237'; sleep 0.1; printf 'y' >&2; sleep 0.1; printf '\230\200c'`,
			Output:  o.Receive,
		})
		require.NoError(t, err)
		require.Len(t, o.String(), len("a€b😀cxy"))
		for _, want := range []string{"€", "😀", "x", "y"} {
			require.Contains(t, o.String(), want)
		}
	},

	"what is not text": func(t *testing.T, h *Harness) {
		out, _, err := exec(limited(t), h, env.ExecRequest{Command: `printf 'a\377\000\001b'`})
		require.NoError(t, err)
		if h.RawOutput {
			require.Equal(t, "a\xff\x00\x01b", out)
		}
		require.Equal(t, "ab", strings.ReplaceAll(env.CleanText(out), "\uFFFD", ""))
	},
}

var spillTests = map[string]func(t *testing.T, h *Harness){
	"under the bounds": func(t *testing.T, h *Harness) {
		if h.NoSpill {
			return
		}
		_, res, err := exec(limited(t), h, env.ExecRequest{
			Command: numbers(10), Spill: &env.Spill{AfterBytes: 70, AfterLines: 10, Name: "x.log"},
		})
		require.NoError(t, err)
		require.Empty(t, res.SpillPath)
		require.Zero(t, res.SpillBytes)
		require.Empty(t, res.SpillError)
	},

	"over a bound": func(t *testing.T, h *Harness) {
		if h.NoSpill {
			return
		}
		for name, s := range map[string]env.Spill{
			"bytes": {AfterBytes: 69}, "lines": {AfterLines: 9}, "either": {AfterBytes: 1000, AfterLines: 9}, "none": {},
		} {
			s.Name = name + ".log"
			_, res, err := exec(limited(t), h, env.ExecRequest{Command: numbers(10), Spill: &s})
			require.NoError(t, err)
			requireSpill(t, h, res, s.Name, numbered(10))
		}
	},

	"all of a long output": func(t *testing.T, h *Harness) {
		if h.NoSpill {
			return
		}
		_, res, err := exec(limited(t), h, env.ExecRequest{
			Command: numbers(20000) + "; exit 3", Window: 1000, Spill: &env.Spill{AfterBytes: 1000, Name: "x.log"},
		})
		require.NoError(t, err)
		require.Equal(t, 3, res.ExitCode)
		requireSpill(t, h, res, "x.log", numbered(20000))
	},

	"a bound of the file": func(t *testing.T, h *Harness) {
		if h.NoSpill {
			return
		}
		_, res, err := exec(limited(t), h, env.ExecRequest{
			Command: numbers(2000), Spill: &env.Spill{AfterBytes: 100, MaxBytes: 5000, Name: "x.log"},
		})
		require.NoError(t, err)
		if h.PrivateSpill {
			requireSpill(t, h, res, "x.log", numbered(2000)[:5000])
		}
	},

	"after a timeout and an abort": func(t *testing.T, h *Harness) {
		if h.NoSpill {
			return
		}
		_, res, err := exec(limited(t), h, env.ExecRequest{
			Command: numbers(500) + "; sleep 60", Timeout: time.Second, Spill: &env.Spill{AfterBytes: 100, Name: "t.log"},
		})
		requireCode(t, err, env.Timeout)
		requireSpill(t, h, res, "t.log", numbered(500))

		ctx, cancel := context.WithCancel(limited(t))
		defer cancel()
		var got bytes.Buffer
		_, res, err = exec(ctx, h, env.ExecRequest{
			Command: numbers(500) + "; sleep 60", Spill: &env.Spill{AfterBytes: 100, Name: "a.log"},
			Output: func(_ env.Stream, text string, _, _ int64) {
				if got.WriteString(text); got.String() == numbered(500) {
					cancel()
				}
			},
		})
		requireCode(t, err, env.Aborted)
		requireSpill(t, h, res, "a.log", numbered(500))
	},

	"private while the command runs": func(t *testing.T, h *Harness) {
		if h.NoSpill || !h.PrivateSpill {
			return
		}
		out, res, err := exec(limited(t), h, env.ExecRequest{
			Command: numbers(500) + "; find . -name 'x.log*' | sed s/^/FOUND/", Spill: &env.Spill{AfterBytes: 100, Name: "x.log"},
		})
		require.NoError(t, err)
		require.NotContains(t, out, "FOUND")
		requireSpill(t, h, res, "x.log", numbered(500))
	},

	"bad names": func(t *testing.T, h *Harness) {
		if h.NoSpill || !h.PrivateSpill {
			return
		}
		for _, name := range []string{"", ".", "..", "a/b", "../x", "a\x00b"} {
			_, err := h.Env.Exec(limited(t), env.ExecRequest{Command: "true", Spill: &env.Spill{Name: name}})
			requireCode(t, err, env.Invalid)
		}
	},

	"a place that the command has taken": func(t *testing.T, h *Harness) {
		if h.NoSpill || !h.PrivateSpill {
			return
		}
		out := outside(t)
		_, res, err := exec(limited(t), h, env.ExecRequest{
			Command: "rm -rf .tmp; ln -s " + out + " .tmp; " + numbers(500), Spill: &env.Spill{AfterBytes: 100, Name: "x.log"},
		})
		require.NoError(t, err, "the command is not disturbed")
		require.Zero(t, res.ExitCode)
		require.Empty(t, res.SpillPath)
		require.NotEmpty(t, res.SpillError)
		require.Equal(t, "next\n", run(t, h, "echo next"))
	},
}

func requireSpill(t *testing.T, h *Harness, res env.ExecResult, name, want string) {
	t.Helper()
	require.Empty(t, res.SpillError)
	require.NotEmpty(t, res.SpillPath)
	if h.PrivateSpill {
		require.Equal(t, ".tmp/"+name, res.SpillPath)
	}
	require.EqualValues(t, len(want), res.SpillBytes)
	requireContent(t, h, res.SpillPath, want)
	requireText(t, want, run(t, h, "cat '"+res.SpillPath+"'"), "a command can read it")
}
