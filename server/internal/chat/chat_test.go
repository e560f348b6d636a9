package chat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client of a server inside the process, and its model.
func newClient(t *testing.T) (*Client, *faux.Provider) {
	t.Helper()
	p := faux.New(&faux.Options{Strict: true})
	models := &model.Set{}
	models.AddProvider(faux.ProviderID, p)
	models.AddModel(faux.Model())
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	agent := durable.Agent{Model: &model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}}
	hang := durable.NewTool(durable.ToolSpec{Name: "hang", Description: "Waits."},
		func(ctx context.Context, call *durable.ToolCall, _ struct{}) (durable.ToolResult, error) {
			call.Output([]byte("hanging\n"))
			<-ctx.Done()
			return durable.ToolResult{}, context.Cause(ctx)
		})
	store := memstore.New()
	engine, err := durable.Open(t.Context(), store, &durable.Options{
		Models: models, Agent: agent, Logger: log, Retry: durable.RetryPolicy{Max: -1},
		Registry: durable.NewRegistry(durable.Extension{Name: "x", Tools: []*durable.Tool{hang}}),
	})
	require.NoError(t, err)
	s, err := server.New(engine, &server.Options{Token: "the-token", Models: models, Agent: agent, Logger: log})
	require.NoError(t, err)
	pipe := NewPipe()
	srv := &http.Server{Handler: s}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(pipe) }()
	transport := &http.Transport{DialContext: pipe.Dial}
	t.Cleanup(func() {
		s.Shutdown()
		transport.CloseIdleConnections()
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, engine.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, store.Close())
	})
	return &Client{Base: "http://localhost", Token: "the-token", HTTP: &http.Client{Transport: transport}}, p
}

// (S1.1) Without a terminal, lines come in and answers go out.
func TestRun(t *testing.T) {
	t.Parallel()
	c, p := newClient(t)
	p.Push(faux.Step{Text: "one"}, faux.Step{Text: "two\n"}, faux.Step{Error: &faux.Error{Class: "quota", Message: "no money"}}, faux.Step{Text: "cut", StopReason: "length"})
	var out, errOut bytes.Buffer
	o := &Options{Client: c, In: strings.NewReader("a\n\n  b \nc\nd\n/quit\ne\n"), Out: &out, Err: &errOut}
	require.ErrorIs(t, Run(t.Context(), o), ErrUnanswered, "nobody saw that one was not")
	require.Equal(t, "one\ntwo\ncut\n", out.String())
	require.Contains(t, errOut.String(), "model faux/faux-1")
	require.Contains(t, errOut.String(), "[no answer: model_error: no money (quota)]\n")
	require.NotContains(t, errOut.String(), "you: ")
	require.Contains(t, errOut.String(), "output limit")
	require.EqualValues(t, 4, p.Count())

	// It comes back to the conversation, and a single message sets the status.
	var id int64
	_, err := fmt.Sscanf(errOut.String(), "conversation %d", &id)
	require.NoError(t, err)
	p.Push(faux.Step{Text: "again"}, faux.Step{Error: &faux.Error{Class: "quota"}})
	out.Reset()
	errOut.Reset()
	o = &Options{Client: c, Conversation: id, Message: "f", Out: &out, Err: &errOut}
	require.NoError(t, Run(t.Context(), o))
	require.Equal(t, "again\n", out.String())
	require.Contains(t, errOut.String(), fmt.Sprintf("resumed conversation %d, model faux/faux-1\nyou: d\nmodel: cut\n", id))
	require.ErrorIs(t, Run(t.Context(), o), ErrUnanswered)

	o.Conversation = 99999
	require.ErrorContains(t, Run(t.Context(), o), "not found")
	c.Token = "wrong-token"
	require.ErrorContains(t, Run(t.Context(), o), "bearer token is wrong")
}

// A server that goes away is waited for, and told about.
func TestRun_Lost(t *testing.T) {
	t.Parallel()
	c, p := newClient(t)
	p.AddRules([]faux.Rule{{Step: faux.Step{Text: "back again"}}}, 0)
	inner := c.HTTP.Transport
	fail := func(part string, times int) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, part) && times != 0 {
				times--
				return nil, io.ErrUnexpectedEOF
			}
			return inner.RoundTrip(r)
		})}
	}
	const lost = "[connection lost, waiting for the server]\n"
	for _, tt := range []struct {
		name, part string
		times      int
		want       string
	}{
		{"while it answers", "/stream", 2, ""},
		{"while it is told", "/submit", 2, ""},
		{"for good, while it answers", "/stream", -1, "the message is stored and will be answered once the server runs again; to see it: chat-me -c "},
		{"for good, while it is told", "/submit", -1, "whether it has the message is not known; to see: chat-me -c "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			client := &Client{Base: c.Base, Token: c.Token, HTTP: fail(tt.part, tt.times)}
			err := Run(t.Context(), &Options{Client: client, Command: "chat-me", Message: "x", Out: &out, Err: &errOut, pause: time.Millisecond})
			require.Equal(t, 1, strings.Count(errOut.String(), lost), errOut.String())
			if tt.want == "" {
				require.NoError(t, err)
				require.Equal(t, "back again\n", out.String())
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "EOF")
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What the reason of an unanswered message adds is shown as a text.
func TestDetail(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		``: "", `"why"`: ": why", `{"message":"no money"}`: ": no money", `{"class":"auth","message":"no key"}`: ": no key (auth)",
		`{"b":2,"a":"x"}`: ": a x, b 2",
	} {
		require.Equal(t, want, detail(&server.Submission{Detail: []byte(raw)}))
	}
}

func TestShortened(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b", shortened(" a\n\nb "))
	require.Equal(t, strings.Repeat("ä", 300)+"…", shortened(strings.Repeat("ä", 301)))
}

// notify writes through and tells when a text has been written.
type notify struct {
	bytes.Buffer
	text string
	seen chan struct{}
}

func (n *notify) Write(p []byte) (int, error) {
	before := strings.Contains(n.String(), n.text)
	w, err := n.Buffer.Write(p)
	if !before && strings.Contains(n.String(), n.text) {
		close(n.seen)
	}
	return w, err
}

// (S1.1) The first Ctrl-C aborts the run, the second one leaves.
func TestRun_Interrupts(t *testing.T) {
	t.Parallel()
	c, p := newClient(t)
	p.Push(faux.Step{Text: "wait", ToolCalls: []faux.ToolCall{{Name: "hang"}}}, faux.Step{Text: "next"})
	interrupts := make(chan os.Signal, 2)
	errOut := &notify{text: "hanging", seen: make(chan struct{})}
	in, feed := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), &Options{Client: c, In: in, Out: &out, Err: errOut, Interrupts: interrupts, Terminal: true})
	}()
	_, err := io.WriteString(feed, "go\n")
	require.NoError(t, err)
	<-errOut.seen
	interrupts <- os.Interrupt
	_, err = io.WriteString(feed, "more\n") // taken once the aborted run has ended
	require.NoError(t, err)
	require.NoError(t, feed.Close())
	require.NoError(t, <-done)
	require.Contains(t, errOut.String(), "no answer: aborted")
	require.Contains(t, errOut.String(), "> hang {}")
	require.Equal(t, "wait\nnext\n", out.String())

	// With nothing running, one is enough.
	in, feed = io.Pipe()
	interrupts <- os.Interrupt
	err = Run(t.Context(), &Options{Client: c, In: in, Out: &out, Err: io.Discard, Interrupts: interrupts})
	require.True(t, IsLeave(err))
	require.NoError(t, feed.Close())
}

// After a reconnect the past comes again, and only what is new is shown.
func TestPrinter_Reconnect(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	p := newPrinter(&out, &errOut, false)
	ev := func(name, data string) { require.NoError(t, p.event(name, []byte(data))) }
	ev("message_start", `{"message":1}`)
	ev("text", `{"message":1,"delta":"Hello "}`)
	ev("text", `{"message":1,"delta":"wor"}`)
	p.reconnected()
	ev("text", `{"message":1,"delta":"Hello world"}`)
	ev("tool_call", `{"message":1,"toolCallId":"a","name":"bash","arguments":{"command":"ls"}}`)
	ev("message_end", `{"message":1}`)
	ev("tool_output", `{"toolCallId":"a","delta":"one\ntwo\n"}`)
	p.reconnected()
	ev("text", `{"message":1,"delta":"Hello world"}`)
	ev("tool_call", `{"message":1,"toolCallId":"a","name":"bash","arguments":{"command":"ls"}}`)
	ev("message_end", `{"message":1}`)
	ev("tool_output", `{"toolCallId":"a","delta":"one\ntwo\nthree\n","reset":true}`)
	ev("tool_result", `{"toolCallId":"a","isError":true,"content":[]}`)
	ev("text", `{"message":2,"delta":"half"}`)
	ev("message_void", `{"message":2,"reason":"retry"}`)
	ev("text", `{"message":3,"delta":"whole"}`)
	ev("done", `{"submission":{"id":1,"status":"done"}}`)
	require.Equal(t, "Hello world\nhalf\nwhole\n", out.String())
	require.Equal(t, "> bash {\"command\":\"ls\"}\none\ntwo\nthree\n> the call failed\n[taken back: retry]\n", errOut.String())
	require.Equal(t, "done", p.done.Status)
	require.Error(t, p.event("text", []byte("{")))
}
