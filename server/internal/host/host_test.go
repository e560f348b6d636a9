package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/tools/isolation"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

func TestMain(m *testing.M) {
	isolation.Main()
	goleak.VerifyTestMain(m)
}

const secret = "sk-very-secret-key"

func redactor(t *testing.T) *secrets.Redactor {
	t.Helper()
	r := secrets.NewRedactor()
	require.NoError(t, r.Add("key", secret))
	return r
}

func testConfig(t *testing.T) *config.Config {
	t.Helper()
	c := config.Default()
	c.Addr, c.DataDir = "127.0.0.1:0", filepath.Join(t.TempDir(), "data")
	c.Test.Faux, c.Test.Unisolated = true, true
	return c
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func start(t *testing.T, c *config.Config) *Host {
	t.Helper()
	h, err := Start(t.Context(), &Options{Config: c, Version: "1", Logger: quiet()})
	require.NoError(t, err)
	return h
}

// (S1.1)
func TestStart(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	h := start(t, c)
	f, err := ReadServerFile(c.DataDir)
	require.NoError(t, err)
	require.Equal(t, &ServerFile{Addr: h.Addr(), PID: os.Getpid(), Key: h.key}, f)
	require.Len(t, f.Key, 32)
	token, err := ReadToken(c.DataDir)
	require.NoError(t, err)
	require.Equal(t, token, h.Token())
	require.Len(t, token, 43)
	info, err := os.Stat(filepath.Join(c.DataDir, tokenName))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.Contains(t, h.Welcome(), token)
	require.Contains(t, h.Welcome(), "NOT ISOLATED")

	_, err = Start(t.Context(), &Options{Config: c, Logger: quiet()})
	require.ErrorIs(t, err, durable.ErrStoreInUse)
	require.ErrorContains(t, err, "WP_DURABLE_DATA_DIR")

	require.NoError(t, h.Close(t.Context()))
	_, err = ReadServerFile(c.DataDir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	h = start(t, c)
	require.Equal(t, token, h.Token(), "generated once")
	require.NotContains(t, h.Welcome(), token)
	require.Contains(t, h.Welcome(), "$(cat ")
	require.NoError(t, h.Close(t.Context()))
}

// A start that fails leaves nothing behind: neither locks nor ports.
func TestStart_Fails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		change     func(t *testing.T, c *config.Config)
	}{
		{"port taken", "WP_DURABLE_ADDR", func(t *testing.T, c *config.Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			c.Addr = l.Addr().String()
		}},
		{"models file", "WP_DURABLE_MODELS_FILE", func(_ *testing.T, c *config.Config) { c.ModelsFile = "/nowhere" }},
		{"corrupt database", "is unchanged", func(t *testing.T, c *config.Config) {
			c.DatabaseURL = filepath.Join(t.TempDir(), "x.db")
			require.NoError(t, os.WriteFile(c.DatabaseURL, []byte(strings.Repeat("no database ", 100)), 0o600))
		}},
		{"token too short", "token has at least", func(t *testing.T, c *config.Config) {
			require.NoError(t, os.MkdirAll(c.DataDir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(c.DataDir, tokenName), []byte("short\n"), 0o600))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t)
			tt.change(t, c)
			_, err := Start(t.Context(), &Options{Config: c, Logger: quiet()})
			require.ErrorContains(t, err, tt.want)
			c2 := testConfig(t)
			c2.DataDir = c.DataDir
			if tt.name == "token too short" {
				c2.Token = "a-longer-token"
			}
			require.NoError(t, start(t, c2).Close(t.Context()))
		})
	}
}

// What the start prints can be used as it stands.
func TestHost_Welcome(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Test, c.Model = config.Test{}, "deepseek/x"
	h, err := Start(t.Context(), &Options{Config: c, Program: "/opt/the program", Logger: quiet()})
	require.NoError(t, err)
	require.Contains(t, h.Welcome(), "listening http://"+h.Addr()+"\n")
	require.Contains(t, h.Welcome(), "model     deepseek/x: no credential for deepseek: set DEEPSEEK_API_KEY\n")
	require.Contains(t, h.Notes(), "no credential for deepseek: set DEEPSEEK_API_KEY")
	require.Contains(t, h.Welcome(), "\n  '/opt/the program' chat --data-dir "+c.DataDir+"\n")
	h.config.DataDir, h.opts.Program = config.Default().DataDir, ""
	require.Contains(t, h.Welcome(), "\n  wp-durable chat\n")
	require.NoError(t, h.Close(t.Context()))
}

func TestHost_Addr(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Addr = "0.0.0.0:0"
	h := start(t, c)
	require.True(t, strings.HasPrefix(h.Addr(), "127.0.0.1:"), h.Addr())
	_, port, err := net.SplitHostPort(h.Addr())
	require.NoError(t, err)
	require.Contains(t, h.Welcome(), "listening on all addresses, port "+port+" (plain HTTP)\n")
	require.NoError(t, h.Close(t.Context()))
	select {
	case <-h.Stopped():
	case <-time.After(10 * time.Second):
		t.Fatal("the server goes on")
	}
}

// failing is a store whose commits fail as a broken disk makes them.
type failing struct{ durable.Store }

func (failing) Commit(context.Context, *durable.Batch) (durable.Seq, error) {
	return 0, fmt.Errorf("flush: %w", durable.ErrStoreFailed)
}

// (E4.3) A store that failed is told to the host, once.
func TestWatchedStore_Failed(t *testing.T) {
	t.Parallel()
	s := watch(failing{memstore.New()}, config.Crash{}, func() { t.Error("killed") })
	for range 2 {
		_, err := s.Commit(t.Context(), &durable.Batch{})
		require.ErrorIs(t, err, durable.ErrStoreFailed)
	}
	<-s.failed
}

func TestWatchedStore_Crash(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		inner := memstore.New()
		var killed atomic.Int64
		stored := func() bool {
			_, err := inner.Conversation(t.Context(), 2)
			return err == nil
		}
		s := watch(inner, config.Crash{At: 2, Before: before}, func() {
			killed.Add(1)
			require.Equal(t, !before, stored())
		})
		for id := range durable.ConversationID(3) {
			at := time.Now().UTC()
			_, err := s.Commit(t.Context(), &durable.Batch{
				Fence:         durable.Fence{Tree: id + 1},
				Conversations: []durable.ConversationRecord{{ID: id + 1, TreeID: id + 1, CreatedAt: at}},
			})
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, killed.Load())
		require.NoError(t, s.Close())
	}
}

// printing is an environment whose commands print what they are told to.
type printing struct {
	env.Environment
	pieces []string
}

func (p printing) Exec(_ context.Context, req env.ExecRequest) (env.ExecResult, error) {
	if req.Output != nil {
		for i, piece := range p.pieces {
			stream, skipped := env.Stdout, int64(0)
			if strings.HasPrefix(piece, "!") {
				stream = env.Stderr
			}
			if strings.HasPrefix(piece, "~") {
				skipped = int64(i)
			}
			req.Output(stream, strings.TrimLeft(piece, "!~"), skipped, 0)
		}
	}
	return env.ExecResult{ExitCode: 7}, nil
}

// (S1.3) What commands print holds no secret, also where it is split.
func TestMaskedEnv(t *testing.T) {
	t.Parallel()
	e := maskedEnv{printing{pieces: []string{"a sk-very-", "!err sk-", "secret-key b", "!x", " sk-ver", "~y", " end sk"}}, redactor(t)}
	var out, errOut strings.Builder
	var skips int64
	res, err := e.Exec(t.Context(), env.ExecRequest{Output: func(s env.Stream, text string, skippedBytes, _ int64) {
		if s == env.Stderr {
			errOut.WriteString(text)
			return
		}
		skips += skippedBytes
		out.WriteString(text)
	}})
	require.NoError(t, err)
	require.Equal(t, 7, res.ExitCode)
	require.Equal(t, "a [redacted] b sk-very end sk", out.String(), "what is skipped splits a text")
	require.Equal(t, "err sk-x", errOut.String())
	require.EqualValues(t, 5, skips)
	_, err = e.Exec(t.Context(), env.ExecRequest{})
	require.NoError(t, err)
}

// (S1.3) The file with the whole output of a command holds no secret, also when
// the command was aborted; without secrets it is left alone.
func TestMaskedEnv_Spill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, err := local.New(dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	e := maskedEnv{plain, redactor(t)}
	long := strings.Repeat("x", 40_000)
	run := func(ctx context.Context, e maskedEnv, name, command string, output func(env.Stream, string, int64, int64)) env.ExecResult {
		res, err := e.Exec(ctx, env.ExecRequest{Command: command, Spill: &env.Spill{AfterBytes: 1, Name: name}, Output: output})
		if ctx.Err() == nil {
			require.NoError(t, err)
		}
		return res
	}
	file := func(res env.ExecResult) string {
		text, err := os.ReadFile(filepath.Join(dir, res.SpillPath))
		require.NoError(t, err)
		require.EqualValues(t, len(text), res.SpillBytes)
		return string(text)
	}
	printed := "printf %s%s%s " + long + secret[:5] + " " + secret[5:] + " end"
	require.Equal(t, long+"[redacted]end", file(run(t.Context(), e, "a.log", printed, nil)))
	require.Equal(t, long+"end", file(run(t.Context(), e, "b.log", "printf %s%s "+long+" end", nil)))

	ctx, abort := context.WithCancel(t.Context())
	res := run(ctx, e, "c.log", "printf %s "+secret+"; exec sleep 3600", func(env.Stream, string, int64, int64) { abort() })
	require.Equal(t, "[redacted]", file(res))

	// One that cannot be masked is removed; one without secrets is not written.
	e = maskedEnv{readOnly{plain}, redactor(t)}
	res = run(t.Context(), e, "d.log", printed, nil)
	require.Empty(t, res.SpillPath)
	require.Contains(t, res.SpillError, "disk full")
	require.NoFileExists(t, filepath.Join(dir, ".tmp", "d.log"))
	require.Equal(t, "fine", file(run(t.Context(), e, "e.log", "printf fine", nil)))
}

// readOnly is an environment that writes nothing.
type readOnly struct{ env.Environment }

func (readOnly) Write(context.Context, string, io.Reader, env.WriteOptions) error {
	return errors.New("disk full")
}

// (S1.3) A tool result holds no secret.
func TestMaskTools(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	var fail error
	tool := durable.NewTool(durable.ToolSpec{Name: "leak", Description: "x"},
		func(context.Context, *durable.ToolCall, struct{}) (durable.ToolResult, error) {
			return durable.ToolResult{
				Content: []model.Block{model.Text("the " + secret)}, Details: []byte(`{"k":"` + secret + `"}`), Handoff: secret,
			}, fail
		})
	var run durable.ToolFunc
	masked := maskTools(durable.Extension{Name: "x", Tools: []*durable.Tool{tool}}, redactor(t))
	masked.Tools[0].WithFunc(func(next durable.ToolFunc) durable.ToolFunc {
		run = next
		return next
	})
	res, err := run(t.Context(), nil, []byte("{}"))
	require.NoError(t, err)
	require.Equal(t, "the [redacted]", res.Content[0].Text)
	require.JSONEq(t, `{"k":"[redacted]"}`, string(res.Details))
	require.Equal(t, "[redacted]", res.Handoff)
	fail = plain
	_, err = run(t.Context(), nil, []byte("{}"))
	require.ErrorIs(t, err, plain)
	fail = errors.New("with " + secret)
	_, err = run(t.Context(), nil, []byte("{}"))
	require.EqualError(t, err, "with [redacted]")
}
