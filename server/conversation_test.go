package server_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
)

// (S3)
func TestConversation_Create(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.Environment = func(context.Context, *durable.Conversation) (*server.Environment, error) {
			return &server.Environment{Kind: "workdir", Path: "/srv/1"}, nil
		}
	})
	c := f.conversation(nil)
	require.NotZero(t, c.ID)
	require.Empty(t, c.Title)
	require.False(t, c.Busy)
	require.False(t, c.CreatedAt.IsZero())
	require.Equal(t, &server.ModelRef{Provider: "faux", ModelID: "faux-1"}, c.Agent.Model)
	require.Equal(t, []string{"echo", "hang"}, c.Agent.Tools)
	require.Equal(t, []string{"test"}, c.Agent.Extensions)
	require.Equal(t, 32000, c.Agent.OutputTokens)
	require.Equal(t, "workdir", c.Env.Kind)
	require.Empty(t, c.Inbox)
	require.Empty(t, c.Children)

	c = f.conversation(`{"title":"T","agent":{"model":{"provider":"faux","modelId":"m"},"thinkingLevel":"high",
		"tools":{"remove":["hang"]},"extensions":{"add":["x"],"remove":["y"]},"instructions":"Be brief.","outputTokens":10}}`)
	require.Equal(t, "T", c.Title)
	require.Equal(t, server.Agent{
		Model: &server.ModelRef{Provider: "faux", ModelID: "m"}, ThinkingLevel: "high", Extensions: []string{"test"},
		Tools: []string{"echo"}, Instructions: "Be brief.", OutputTokens: 10,
	}, c.Agent)

	var again server.Conversation
	f.do("GET", path("/v1/conversations/%d", c.ID), nil).into(200, &again)
	require.Equal(t, c, again)
}

func TestConversation_CreateRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct{ name, body, location string }{
		{"unknown field", `{"tilte":"x"}`, "body.tilte"},
		{"title of another type", `{"title":1}`, "body.title"},
		{"title too long", `{"title":"` + strings.Repeat("x", 501) + `"}`, "body.title"},
		{"unknown field of the agent", `{"agent":{"modle":null}}`, "body.agent.modle"},
		{"half a model", `{"agent":{"model":{"provider":"p"}}}`, "body.agent.model.modelId"},
		{"a model that is a text", `{"agent":{"model":"p/m"}}`, "body.agent.model"},
		{"a provider that there is not", `{"agent":{"model":{"provider":"p","modelId":"m"}}}`, "body.agent.model"},
		{"an unknown model of a provider without credential", `{"agent":{"model":{"provider":"keyless","modelId":"m"}}}`, "body.agent.model"},
		{"unknown thinking level", `{"agent":{"thinkingLevel":"huge"}}`, "body.agent.thinkingLevel"},
		{"adding tools", `{"agent":{"tools":{"add":["x"]}}}`, "body.agent.tools.remove"},
		{"output limit of 0", `{"agent":{"outputTokens":0}}`, "body.agent.outputTokens"},
		{"a folder that nobody owns", `{"agent":{"cwd":"/etc"}}`, "body.agent.cwd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := f.do("POST", "/v1/conversations", tt.body).problem(400, "invalid")
			require.Equal(t, tt.location, p["errors"].([]any)[0].(map[string]any)["location"])
		})
	}
	p := f.do("POST", "/v1/conversations", `{"agent":{"thinkingLevel":"huge"}}`).problem(400, "invalid")
	require.Contains(t, p["error"], "off, minimal, low, medium, high, xhigh, max")
	p = f.do("POST", "/v1/conversations", `{"agent":{"model":{}}}`).problem(400, "invalid")
	require.Len(t, p["errors"], 2, "all that is missing")
	p = f.do("POST", "/v1/conversations", `{"agent":{"model":"p/m"}}`).problem(400, "invalid")
	require.Contains(t, p["error"], "expected an object or null, not a string")
	p = f.do("POST", "/v1/submit", `{"requestId":"r","content":"x","agent":{"model":{"provider":"p","modelId":"m"}}}`).problem(400, "invalid")
	require.Contains(t, p["error"], "there are faux, keyless")
	p = f.do("GET", "/v1/conversations/99", nil).problem(404, "not_found")
	require.Equal(t, "conversation 99: not found", p["error"])
	for _, route := range []string{"/v1/conversations?limt=3", "/v1/submissions/1/stream?after=1", "/healthz?x", "/openapi.json?x=1"} {
		p = f.do("GET", route, nil).problem(400, "invalid")
		require.Contains(t, p["errors"].([]any)[0].(map[string]any)["location"], "query.", route)
	}
	f.do("GET", "/v1/conversations/0", nil).problem(400, "invalid")
	f.do("GET", "/v1/conversations/x", nil).problem(400, "invalid")
	f.do("PATCH", "/v1/conversations/99", `{}`).problem(404, "not_found")
	require.Equal(t, "GET, HEAD, PATCH", f.do("DELETE", "/v1/conversations/1", nil).header.Get("Allow"))
}

// (S3) Given fields replace, null clears, absent ones stay.
func TestConversation_Update(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.OwnsCwd = func(_ context.Context, cwd string) (bool, error) { return cwd == "/home/p", nil }
	})
	c := f.conversation(`{"title":"T","agent":{"instructions":"I","outputTokens":10,"thinkingLevel":"low"}}`)
	patch := func(body string) (out server.Conversation) {
		f.do("PATCH", path("/v1/conversations/%d", c.ID), body).into(200, &out)
		return out
	}
	require.Equal(t, c, patch(`{}`))
	require.Equal(t, c, patch(`{"agent":{}}`))
	require.Equal(t, "U", patch(`{"title":"U"}`).Title)
	require.Equal(t, "U", patch(`{"agent":{"instructions":null}}`).Title)
	got := patch(`{"title":null,"agent":{"outputTokens":null,"tools":[],"cwd":"/home/p"}}`)
	require.Empty(t, got.Title)
	require.Empty(t, got.Agent.Instructions)
	require.Equal(t, 32000, got.Agent.OutputTokens)
	require.Empty(t, got.Agent.Tools)
	require.Equal(t, "/home/p", got.Agent.Cwd)
	require.EqualValues(t, "low", got.Agent.ThinkingLevel)
	got = patch(`{"agent":{"tools":null,"cwd":null,"thinkingLevel":null,"model":null,"extensions":null}}`)
	require.Len(t, got.Agent.Tools, 2)
	require.Empty(t, got.Agent.Cwd)
	require.EqualValues(t, "off", got.Agent.ThinkingLevel)

	f.do("PATCH", path("/v1/conversations/%d", c.ID), `{"agent":{"cwd":"/etc"}}`).problem(400, "invalid")
	f.do("PATCH", path("/v1/conversations/%d", c.ID), nil).problem(400, "invalid")

	// cwd stays while the conversation is busy; the rest may change.
	hold := make(chan struct{})
	f.faux.Push(faux.Step{Text: "x", Hold: hold})
	sub := f.submit(c.ID, input("r", "go"))
	f.do("PATCH", path("/v1/conversations/%d", c.ID), `{"agent":{"cwd":"/home/p"}}`).problem(409, "busy")
	require.Equal(t, "V", patch(`{"title":"V"}`).Title)
	close(hold)
	f.wait(sub.ID)
}

// (S3) Whether a conversation is busy is decided with the change, not before.
func TestConversation_PatchCwdWhileBecomingBusy(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.OwnsCwd = func(context.Context, string) (bool, error) {
			close(asked)
			return true, nil
		}
	})
	c := f.conversation(nil)
	hold := make(chan struct{})
	f.faux.Push(faux.Step{Text: "x", Hold: hold})
	status := make(chan int, 1)
	var sub durable.SubmissionID
	// While the change waits for this commit, the conversation becomes busy.
	require.NoError(t, f.engine.Update(t.Context(), c.ID, func(_ context.Context, tx *durable.Tx) (err error) {
		go func() {
			status <- f.do("PATCH", path("/v1/conversations/%d", c.ID), `{"agent":{"cwd":"/home/p"}}`).status
		}()
		<-asked
		sub, _, err = tx.Submit(c.ID, &durable.SubmitParams{RequestID: "r", Content: []model.Block{model.Text("go")}})
		return err
	}))
	require.Equal(t, 409, <-status)
	close(hold)
	f.wait(sub)
}

// (S2) Lists are paged, newest conversations first.
func TestConversation_List(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ids []durable.ConversationID
	for range 5 {
		ids = append(ids, f.conversation(nil).ID)
	}
	walk := func(query string) (got []durable.ConversationID) {
		next := ""
		for {
			var page server.ConversationPage
			f.do("GET", "/v1/conversations?"+query+"&cursor="+next, nil).into(200, &page)
			for _, c := range page.Items {
				got = append(got, c.ID)
			}
			if next = page.Next; next == "" {
				return got
			}
			require.NotEmpty(t, page.Items)
		}
	}
	require.ElementsMatch(t, ids, walk(""))
	require.Equal(t, walk(""), walk("limit=2"))
	up := walk("limit=2&order=asc")
	for i, id := range walk("limit=5") {
		require.Equal(t, up[4-i], id)
	}
	require.Empty(t, walk("parent=1"))
	// A cursor is of one list: its order and its filter (S2).
	var page server.ConversationPage
	f.do("GET", "/v1/conversations?limit=2", nil).into(200, &page)
	f.do("GET", "/v1/conversations?order=asc&cursor="+page.Next, nil).problem(400, "invalid")
	f.do("GET", path("/v1/conversations?parent=%d&cursor=%s", ids[0], page.Next), nil).problem(400, "invalid")
	for _, order := range []string{"asc", "desc"} {
		for _, at := range []string{"9223372036854775807:1", "1:9223372036854775807", "9223372036854775807:9223372036854775807"} {
			cursor := base64.RawURLEncoding.EncodeToString([]byte("c." + order + ".0:" + at))
			f.do("GET", "/v1/conversations?order="+order+"&cursor="+cursor, nil).into(200, &page)
			require.Empty(t, page.Items)
		}
	}
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "order=up", "cursor=x", "cursor=ZTox", "cursor=Yzox", "cursor=Yzox0jI", "parent=0", "parent=-1"} {
		f.do("GET", "/v1/conversations?"+query, nil).problem(400, "invalid")
	}
}

// (S3) A child conversation shows its owner, and the owner the child.
func TestConversation_Children(t *testing.T) {
	t.Parallel()
	var child durable.ConversationID
	spawn := durable.NewTool(durable.ToolSpec{Name: "spawn", Description: "Makes a child."},
		func(ctx context.Context, call *durable.ToolCall, _ struct{}) (durable.ToolResult, error) {
			err := call.Commit(ctx, func(_ context.Context, tx *durable.Tx) (err error) {
				child, err = tx.CreateConversation(call.TaskID())
				return err
			})
			return durable.TextResult("made"), err
		})
	f := newFixture(t, func(o *fixtureOptions) {
		o.engine.Registry = durable.NewRegistry(durable.Extension{Name: "spawn", Tools: []*durable.Tool{spawn}})
	})
	c := f.conversation(nil)
	f.faux.Push(faux.Step{ToolCalls: []faux.ToolCall{{Name: "spawn"}}}, faux.Step{Text: "done"})
	f.wait(f.submit(c.ID, input("r", "go")).ID)

	var parent, kid server.Conversation
	f.do("GET", path("/v1/conversations/%d", c.ID), nil).into(200, &parent)
	require.Len(t, parent.Children, 1)
	require.Equal(t, child, parent.Children[0].ConversationID)
	f.do("GET", path("/v1/conversations/%d", child), nil).into(200, &kid)
	require.Equal(t, c.ID, kid.Parent.ConversationID)
	require.Equal(t, parent.Children[0].TaskID, kid.Parent.TaskID)
	var page server.ConversationPage
	f.do("GET", path("/v1/conversations?parent=%d", c.ID), nil).into(200, &page)
	require.Len(t, page.Items, 1)
	require.Equal(t, child, page.Items[0].ID)
}
