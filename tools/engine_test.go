package tools_test

import (
	"context"
	"encoding/json"
	"image"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/tools"
)

// rig is an engine with the tools, a work folder and a scripted model.
type rig struct {
	t      *testing.T
	dir    string
	model  *faux.Provider
	store  durable.Store
	opts   durable.Options
	engine *durable.Engine
}

func newRig(t *testing.T, opts *tools.Options) *rig {
	t.Helper()
	work, err := local.New(t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, work.Close()) })
	r := &rig{t: t, dir: work.WorkDir(), model: faux.New(&faux.Options{Strict: true}), store: memstore.New()}
	models := &model.Set{}
	models.AddProvider(faux.ProviderID, r.model)
	models.AddModel(faux.Model())
	r.opts = durable.Options{
		Models: models, Registry: durable.NewRegistry(tools.Extension(opts)),
		Agent:           durable.Agent{Model: &model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}},
		Env:             func(context.Context, *durable.Conversation) (env.Environment, error) { return work, nil },
		PartialInterval: time.Millisecond,
		Logger:          slog.New(slog.NewTextHandler(logWriter{t}, nil)),
	}
	r.open()
	t.Cleanup(func() { require.NoError(t, r.engine.Close(context.Background())) })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	e, err := durable.Open(r.t.Context(), r.store, &r.opts)
	require.NoError(r.t, err)
	r.engine = e
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

func (r *rig) conversation(change *durable.AgentChange) *durable.Conversation {
	r.t.Helper()
	c, err := r.engine.NewConversation(r.t.Context(), &durable.ConversationParams{Agent: change})
	require.NoError(r.t, err)
	return c
}

func (r *rig) limited() context.Context {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) ask(c *durable.Conversation) *durable.Submission {
	r.t.Helper()
	s, err := c.Send(r.t.Context(), "go on")
	require.NoError(r.t, err)
	return s
}

func (r *rig) answer(s *durable.Submission) string {
	r.t.Helper()
	rec, err := s.Wait(r.limited())
	require.NoError(r.t, err)
	require.Equal(r.t, durable.SubmissionDone, rec.Status, "%s %s", rec.Reason, rec.Detail)
	m, err := s.Answer(r.t.Context())
	require.NoError(r.t, err)
	return m.Text()
}

// results returns the tool results of a conversation in the order of calls.
func (r *rig) results(c *durable.Conversation) []model.Message {
	r.t.Helper()
	messages, err := c.Context(r.t.Context())
	require.NoError(r.t, err)
	var out []model.Message
	for _, m := range messages {
		if m.Role == model.RoleToolResult {
			out = append(out, m)
		}
	}
	return out
}

func call(name string, args any) faux.Step {
	raw, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return faux.Step{ToolCalls: []faux.ToolCall{{Name: name, Arguments: raw}}}
}

type object map[string]any

// A round of every tool (S5.1), with what models and user interfaces get.
func TestExtension_Round(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := r.conversation(nil)
	r.model.Push(
		call("write", object{"file_path": "src/a.txt", "content": "one\ntwo\n"}),
		call("read", object{"path": "src/a.txt", "limit": "1"}),
		call("edit", object{"path": "src/a.txt", "edits": `[{"old_string":"two","new_string":"2"}]`}),
		call("bash", object{"command": "cat src/a.txt; exit 3"}),
		call("bash", object{"timeout": 5}),
		faux.Step{Text: "done"},
	)
	require.Equal(t, "done", r.answer(r.ask(c)))
	res := r.results(c)
	require.Len(t, res, 5)
	for i, want := range []struct {
		text    string
		isError bool
		details string
	}{
		{"Created src/a.txt (2 lines, 8 bytes).", false, `"created":true`},
		{"     1\tone\n[lines 1 to 1 of 2, 8 bytes in all; go on with offset 2]", false, `"totalLines":2`},
		{"Edited src/a.txt: 1 replacement.\n--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n", false, `"firstLine":2`},
		{"one\n2\n[exit code 3]", true, `"exitCode":3`},
	} {
		require.Equal(t, want.text, res[i].Text())
		require.Equal(t, want.isError, res[i].IsError)
		require.Contains(t, string(res[i].Details), want.details)
	}
	require.True(t, res[4].IsError)
	require.Contains(t, res[4].Text(), "command", "the missing argument is named")

	messages, err := c.Context(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(messages[2].ToolCalls()[0].Arguments), "file_path", "the transcript keeps what the model wrote")
	require.FileExists(t, filepath.Join(r.dir, "src/a.txt"))
}

// (S5.1): sections name only what the request offers; without tools there is
// no environment section but one that says so.
func TestExtension_Sections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tools  *durable.Choice
		has    []string
		hasNot []string
	}{
		"all tools":  {nil, []string{"<environment>\nThe work folder is ", "read, write, edit: ", "bash: ", "no network"}, []string{"no-tools"}},
		"read alone": {durable.List("read"), []string{"<environment>", "\nread: "}, []string{"bash", "write", "edit", "no-tools"}},
		"none":       {durable.List(), []string{"<no-tools>\nThis conversation has no tools."}, []string{"environment"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.model.Push(faux.Step{Text: "hi"})
			c := r.conversation(&durable.AgentChange{Tools: &tc.tools})
			r.answer(r.ask(c))
			requests := r.model.Requests()
			sys, _ := model.FoldSystem(requests[len(requests)-1].Messages)
			for _, s := range tc.has {
				require.Contains(t, sys.Prompt(), s)
			}
			for _, s := range tc.hasNot {
				require.NotContains(t, sys.Prompt(), s)
			}
		})
	}
	t.Run("no environment", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		require.NoError(t, r.engine.Close(context.Background()))
		r.opts.Env = nil
		r.open()
		r.model.Push(call("read", object{"path": "f"}), faux.Step{Text: "hi"})
		c := r.conversation(nil)
		r.answer(r.ask(c))
		sys, _ := model.FoldSystem(r.model.Requests()[0].Messages)
		require.Empty(t, sys.Prompt())
		require.Contains(t, r.results(c)[0].Text(), "conversation has no environment")
	})
}

// (S5.2): output is shown while the command runs, and what is cut is said.
func TestBash_Stream(t *testing.T) {
	t.Parallel()
	r := newRig(t, &tools.Options{BashOutputBytes: 2000})
	c := r.conversation(nil)
	r.model.Push(
		call("bash", object{"command": "echo begun; until [ -e seen ]; do sleep 0.01; done; seq 1000"}),
		faux.Step{Text: "done"},
	)
	ctx, stop := context.WithCancel(r.limited())
	defer stop()
	s := r.ask(c)
	shown := ""
	for ev, err := range c.Events(ctx, "") {
		require.NoError(t, err)
		if ev.Type == durable.EventToolUpdate {
			shown += ev.Data.(durable.ToolEvent).Delta
		}
		if snapshot, ok := ev.Data.(durable.Snapshot); ok && len(snapshot.RunningTools) > 0 {
			shown += snapshot.RunningTools[0].Output
		}
		if strings.Contains(shown, "begun\n") {
			break
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "seen"), nil, 0o600))
	require.Equal(t, "done", r.answer(s))
	res := r.results(c)[0]
	require.False(t, res.IsError)
	require.Len(t, res.Content, 2)
	require.True(t, strings.HasSuffix(res.Content[0].Text, "999\n1000\n"))
	require.LessOrEqual(t, len(res.Content[0].Text), 2000)
	require.Regexp(t, `(?s)^<harness>\n\[warning\] Shown are the last 2\.0 KB of 3\.8 KB .* All of it is in \.tmp/bash-\d+\.log \(3\.8 KB\)\.\n</harness>$`, res.Content[1].Text)
	log, err := filepath.Glob(filepath.Join(r.dir, ".tmp/bash-*.log"))
	require.NoError(t, err)
	require.Len(t, log, 1)
}

const beating = "trap '' TERM; echo begun; while :; do echo x >> beat; sleep 0.01; done"

// begun waits until the command of beating has begun.
func (r *rig) begun() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		info, err := os.Stat(filepath.Join(r.dir, "beat"))
		return err == nil && info.Size() > 0
	}, time.Minute, 5*time.Millisecond)
}

// still asserts that the command of beating goes on no more.
func (r *rig) still(c *durable.Conversation) {
	r.t.Helper()
	r.model.Push(call("bash", object{"command": "wc -c < beat; sleep 0.2; wc -c < beat"}), faux.Step{Text: "still"})
	require.Equal(r.t, "still", r.answer(r.ask(c)))
	res := r.results(c)
	sizes := strings.Fields(res[len(res)-1].Text())
	require.Len(r.t, sizes, 2)
	require.Equal(r.t, sizes[0], sizes[1])
}

// (S5.2): abort kills what the call started; its output is kept.
func TestBash_AbortedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := r.conversation(nil)
	r.model.Push(call("bash", object{"command": beating}))
	s := r.ask(c)
	r.begun()
	_, err := c.Abort(r.limited(), nil)
	require.NoError(t, err)
	rec, err := s.Wait(r.limited())
	require.NoError(t, err)
	require.Equal(t, durable.SubmissionUnanswered, rec.Status)
	require.Equal(t, "aborted", rec.Reason)
	res := r.results(c)
	require.Len(t, res, 1)
	require.True(t, res[0].IsError)
	require.Contains(t, res[0].Text(), "begun\n")
	r.still(c)
}

// (S5.2): after a stop in the middle, bash is interrupted with its output.
func TestBash_Recovery(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := r.conversation(nil)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "f"), []byte("content\n"), 0o600))
	r.model.Push(
		faux.Step{ToolCalls: []faux.ToolCall{{Name: "bash", Arguments: json.RawMessage(`{"command":` + quote(beating) + `}`)}}},
		faux.Step{Text: "after"},
	)
	s := r.ask(c)
	r.begun()
	require.NoError(t, r.engine.Close(context.Background()))
	r.open()
	c, err := r.engine.Conversation(t.Context(), c.ID())
	require.NoError(t, err)
	s, err = r.engine.Submission(t.Context(), s.ID())
	require.NoError(t, err)
	require.Equal(t, "after", r.answer(s))
	res := r.results(c)
	require.Len(t, res, 1)
	require.True(t, res[0].IsError)
	require.Contains(t, res[0].Text(), "begun\n")
	require.Contains(t, res[0].Text(), "interrupted")
	r.still(c)
}

// slowEnv is an environment whose first Open waits until it is cancelled.
type slowEnv struct {
	env.Environment
	opened chan struct{}
}

func (e *slowEnv) Open(ctx context.Context, path string) (env.Reader, error) {
	select {
	case <-e.opened:
		return e.Environment.Open(ctx, path)
	default:
		close(e.opened)
		<-ctx.Done()
		return nil, &env.Error{Code: env.Aborted, Path: path, Message: "aborted"}
	}
}

// (S5.3): read is replay-safe: after a stop in the middle it runs again.
func TestRead_Recovery(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "f"), []byte("content\n"), 0o600))
	opened := make(chan struct{})
	plain := r.opts.Env
	require.NoError(t, r.engine.Close(context.Background()))
	r.opts.Env = func(ctx context.Context, c *durable.Conversation) (env.Environment, error) {
		e, err := plain(ctx, c)
		return &slowEnv{e, opened}, err
	}
	r.open()
	c := r.conversation(nil)
	r.model.Push(call("read", object{"path": "f"}), faux.Step{Text: "after"})
	s := r.ask(c)
	<-opened
	require.NoError(t, r.engine.Close(context.Background()))
	r.open()
	s, err := r.engine.Submission(t.Context(), s.ID())
	require.NoError(t, err)
	require.Equal(t, "after", r.answer(s))
	c, err = r.engine.Conversation(t.Context(), c.ID())
	require.NoError(t, err)
	res := r.results(c)
	require.Len(t, res, 1)
	require.False(t, res[0].IsError)
	require.Contains(t, res[0].Text(), "     1\tcontent\n")
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// (S5.3): the model gets the image.
func TestRead_ImageRound(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, err := os.Create(filepath.Join(r.dir, "pic.png"))
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, image.NewGray(image.Rect(0, 0, 10, 10))))
	require.NoError(t, f.Close())
	c := r.conversation(nil)
	r.model.Push(call("read", object{"path": "pic.png"}), faux.Step{Text: "seen"})
	require.Equal(t, "seen", r.answer(r.ask(c)))
	requests := r.model.Requests()
	last := requests[len(requests)-1].Messages
	content := last[len(last)-1].Content
	require.Len(t, content, 2)
	require.Equal(t, model.BlockImage, content[1].Type)
	require.Equal(t, "image/png", content[1].MimeType)
}

// (S5.4): edits of one round on one file do not lose each other.
func TestEdit_ParallelCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "f"), []byte("a\nb\nc\nd\n"), 0o600))
	var step faux.Step
	for _, l := range []string{"a", "b", "c", "d"} {
		step.ToolCalls = append(step.ToolCalls, faux.ToolCall{
			Name: "edit", Arguments: json.RawMessage(`{"path":"f","edits":[{"oldText":"` + l + `\n","newText":"` + strings.ToUpper(l) + `\n"}]}`),
		})
	}
	r.model.Push(step, faux.Step{Text: "done"})
	c := r.conversation(nil)
	require.Equal(t, "done", r.answer(r.ask(c)))
	b, err := os.ReadFile(filepath.Join(r.dir, "f"))
	require.NoError(t, err)
	require.Equal(t, "A\nB\nC\nD\n", string(b))
}

func TestExtension_Which(t *testing.T) {
	t.Parallel()
	names := func(ext durable.Extension) []string {
		var out []string
		for _, tool := range ext.Tools {
			out = append(out, tool.Name())
		}
		return out
	}
	require.Equal(t, []string{"bash", "read", "write", "edit"}, names(tools.Extension(nil)))
	require.Equal(t, []string{"edit", "read"}, names(tools.Extension(&tools.Options{Which: []string{"edit", "read"}})))
	require.Empty(t, names(tools.Extension(&tools.Options{Which: []string{}})))
	require.PanicsWithValue(t, `tools.Extension: Which names "grep", which is none of the tools`, func() {
		tools.Extension(&tools.Options{Which: []string{"grep"}})
	})
}
