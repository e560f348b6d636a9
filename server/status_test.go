package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
)

// faulty is a store whose commits or reads fail when asked to.
type faulty struct {
	durable.Store
	commit, read error
}

func (s *faulty) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	if s.commit != nil {
		return 0, s.commit
	}
	return s.Store.Commit(ctx, b)
}

func (s *faulty) LiveTrees(ctx context.Context, after durable.ConversationID, limit int) ([]durable.ConversationID, error) {
	if s.read != nil {
		return nil, s.read
	}
	return s.Store.LiveTrees(ctx, after, limit)
}

// (S3)
func TestHealth(t *testing.T) {
	t.Parallel()
	store := &faulty{Store: memstore.New()}
	f := newFixture(t, func(o *fixtureOptions) { o.store = store })
	var h server.Health
	f.do("GET", "/healthz", nil, "Authorization", "").into(200, &h)
	require.True(t, h.OK)
	require.Equal(t, "1.2.3", h.Version)
	require.Equal(t, "off", h.Isolation)
	require.Equal(t, 2, h.Tools)
	require.Equal(t, "ok", h.Store)

	store.read = durable.ErrStoreFailed
	f.do("GET", "/healthz", nil, "Authorization", "").into(503, &h)
	require.False(t, h.OK)
	require.Equal(t, "failed", h.Store)
	require.Equal(t, "1.2.3", h.Version, "the same shape")
	f.do("GET", "/v1/status", nil).problem(503, "unavailable")
}

// (S3, S1.5) While it stops, too, the answer is the one that is documented.
func TestHealth_Closing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) { o.server.Key = []byte("key") })
	var h server.Health
	a := f.do("GET", "/healthz", nil, "Wp-Durable-Challenge", "c")
	a.into(200, &h)
	require.Equal(t, server.Proof([]byte("key"), "c"), a.header.Get("Wp-Durable-Proof"))
	require.NotEqual(t, server.Proof([]byte("key"), "d"), server.Proof([]byte("key"), "c"))
	require.Empty(t, a.header.Get("Retry-After"))
	f.server.Shutdown()
	a = f.do("GET", "/healthz", nil)
	a.into(503, &h)
	require.Equal(t, "closing", h.Store)
	require.Equal(t, "1.2.3", h.Version)
	require.False(t, h.OK)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	doc, err := server.OpenAPI()
	require.NoError(t, err)
	var d struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct{ Content map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(doc.JSON, &d))
	for _, status := range []string{"200", "503"} {
		require.Equal(t, map[string]any{"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Health"}}},
			d.Paths["/healthz"]["get"].Responses[status].Content)
	}
}

// (S2) Errors of the store are proper answers.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	store := &faulty{Store: memstore.New()}
	f := newFixture(t, func(o *fixtureOptions) { o.store = store })
	c := f.conversation(nil)
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{durable.ErrStoreFull, 507, "store_full"},
		{fmt.Errorf("commit: %w", durable.ErrRejected), 503, "unavailable"},
	} {
		store.commit = tt.err
		f.do("POST", "/v1/conversations", "{}").problem(tt.status, tt.code)
		f.do("POST", path("/v1/conversations/%d/submit", c.ID), input("r", "x")).problem(tt.status, tt.code)
		f.do("GET", path("/v1/conversations/%d", c.ID), nil).into(200, &c)
	}
	store.commit = nil
	store.read = errors.New("disk on fire at /secret/path")
	a := f.do("GET", "/v1/status", nil)
	a.problem(500, "internal")
	require.NotContains(t, a.body, "fire", "what clients cannot act on is logged only")
	store.read = nil
}

// (S3, S7)
func TestStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.Isolation = func() server.Isolation {
			return server.Isolation{State: "failed", Level: "root", Reason: "because", Checks: []server.IsolationCheck{{Name: "uid", Detail: "no"}}}
		}
		o.server.Extensions = func() map[string]any { return map[string]any{"jev": map[string]any{"state": "off"}} }
	})
	var raw map[string]any
	f.do("GET", "/v1/status", nil).into(200, &raw)
	require.EqualValues(t, 32000, raw["limits"].(map[string]any)["outputTokens"])
	require.EqualValues(t, 2, raw["limits"].(map[string]any)["apifyDailyUsd"])
	var st server.Status
	f.do("GET", "/v1/status", nil).into(200, &st)
	require.Equal(t, "memory", st.Store.Kind)
	require.Equal(t, "failed", st.Isolation.State)
	require.Len(t, st.Isolation.Checks, 1)
	require.Equal(t, []server.ProviderStatus{
		{ID: "faux", Credential: "ok"},
		{ID: "keyless", Credential: "missing", Reason: "keyless: no API key: missing credential"},
	}, st.Providers)
	require.Contains(t, st.Extensions, "jev")
	require.Contains(t, st.Extensions, "test")
}

// (S3)
func TestCatalog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.Agent.Tools = &durable.Choice{Changes: true, Remove: []string{"hang"}}
	})
	var tools server.ToolList
	f.do("GET", "/v1/tools", nil).into(200, &tools)
	require.Len(t, tools.Items, 1)
	require.Equal(t, "echo", tools.Items[0].Name)
	require.Equal(t, "safe", tools.Items[0].Replay)
	require.Equal(t, "test", tools.Items[0].Extension)
	require.Contains(t, string(tools.Items[0].Parameters), `"text"`)
	var models server.ModelList
	f.do("GET", "/v1/models", nil).into(200, &models)
	require.Len(t, models.Items, 2)
	require.True(t, models.Items[0].Available)
	require.True(t, models.Items[0].Default)
	require.InDelta(t, 10, models.Items[0].Prices.Output, 0)
	require.False(t, models.Items[1].Available)
	require.Contains(t, models.Items[1].Reason, "no API key")
	require.Nil(t, models.Items[1].Prices)
}

// (S1.3) Whatever holds a secret, no body shows it.
func TestSecretsInBodies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "The key is " + apiKey}}}, 0)
	c := f.conversation(map[string]any{"title": apiKey, "agent": map[string]any{"instructions": "use " + apiKey}})
	require.Equal(t, "[redacted]", c.Title)
	sub := f.submit(c.ID, map[string]any{"requestId": apiKey, "content": "my key: " + apiKey})
	require.Equal(t, "The key is [redacted]", f.wait(sub.ID).Answer.Text)
	f.follow(sub.ID).rest()
	f.open(path("/v1/conversations/%d/events", c.ID)).until("snapshot")
	for _, route := range []string{"entries", "context"} {
		require.Contains(t, f.do("GET", path("/v1/conversations/%d/%s", c.ID, route), nil).body, "[redacted]")
	}
	f.do("GET", "/v1/test/faux/requests", nil)
	for _, req := range f.faux.Requests() {
		require.NotContains(t, fmt.Sprint(req.Messages), apiKey, "no model is told")
	}
	f.do("POST", "/v1/conversations", `{"`+apiKey+`":1}`).problem(400, "invalid")
	f.do("GET", "/v1/conversations/"+apiKey, nil).problem(400, "invalid")
}

// (S2) The token is needed everywhere under /v1, and the document is open.
func TestAuth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, route := range []string{"/v1/status", "/v1/conversations", "/v1/test/faux/requests", "/v1/nothing"} {
		f.do("GET", route, nil, "Authorization", "Bearer wrong").problem(401, "unauthorized")
	}
	for _, route := range []string{"/openapi.json", "/openapi.yaml", "/openapi-3.0.json", "/openapi-3.0.yaml"} {
		a := f.do("GET", route, nil, "Authorization", "")
		require.Equal(t, 200, a.status)
		require.Contains(t, a.body, "createConversation")
		require.NotContains(t, a.body, "faux/responses")
	}
	f.do("GET", "/v1/conversations", nil, "Origin", "https://evil.example.com").problem(403, "forbidden")
	_, err := server.New(f.engine, nil)
	require.ErrorIs(t, err, durable.ErrInvalid)
}

// (S2) Images come in bodies of up to 20 MB.
func TestBodySize(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.Limits = server.DefaultLimits()
		o.server.Limits.BodyBytes = 1 << 16
	})
	c := f.conversation(nil)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	f.submit(c.ID, input("r1", strings.Repeat("x", 60_000)))
	f.do("POST", path("/v1/conversations/%d/submit", c.ID), input("r2", strings.Repeat("x", 1<<16))).problem(413, "too_large")
	require.EqualValues(t, 20_000_000, server.DefaultLimits().BodyBytes)
	res := f.send(http.MethodPost, "/v1/conversations", "title=x", "Content-Type", "text/plain")
	require.Equal(t, 415, res.StatusCode)
	require.NoError(t, res.Body.Close())
}

// (S3) The history, paged in both directions, and for followers.
func TestEntries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	c := f.conversation(nil)
	for i := range 3 {
		f.wait(f.submit(c.ID, input(fmt.Sprint(i), "x")).ID)
	}
	walk := func(query string) (got []durable.EntryID) {
		next := ""
		for {
			var page server.EntryPage
			f.do("GET", path("/v1/conversations/%d/entries?%s&cursor=%s", c.ID, query, next), nil).into(200, &page)
			for _, e := range page.Items {
				require.Equal(t, c.ID, e.ConversationID)
				got = append(got, e.ID)
			}
			if next = page.Next; next == "" {
				return got
			}
		}
	}
	all := walk("")
	require.GreaterOrEqual(t, len(all), 6)
	require.IsIncreasing(t, all)
	require.Equal(t, all, walk("limit=2"))
	down := walk("limit=2&order=desc")
	require.IsDecreasing(t, down)
	require.Len(t, down, len(all))
	require.Equal(t, all[3:], walk(fmt.Sprintf("limit=1&after=%d", all[2])))
	require.Empty(t, walk(fmt.Sprintf("after=%d", all[len(all)-1])))
	// A cursor is of one list: its conversation, its order and its filter (S2).
	var first server.EntryPage
	f.do("GET", path("/v1/conversations/%d/entries?limit=2", c.ID), nil).into(200, &first)
	f.do("GET", path("/v1/conversations/%d/entries?order=desc&cursor=%s", c.ID, first.Next), nil).problem(400, "invalid")
	f.do("GET", path("/v1/conversations/%d/entries?after=1&cursor=%s", c.ID, first.Next), nil).problem(400, "invalid")
	f.do("GET", path("/v1/conversations/%d/entries?cursor=%s", f.conversation(nil).ID, first.Next), nil).problem(400, "invalid")
	f.do("GET", path("/v1/conversations?cursor=%s", first.Next), nil).problem(400, "invalid")
	require.Empty(t, walk("after=9223372036854775807"), "nothing is behind the greatest id")
	for _, order := range []string{"asc", "desc"} {
		cursor := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "e.%d.%s.0:9223372036854775807", c.ID, order))
		var page server.EntryPage
		f.do("GET", path("/v1/conversations/%d/entries?order=%s&cursor=%s", c.ID, order, cursor), nil).into(200, &page)
		require.Empty(t, page.Items)
	}
	for _, query := range []string{"cursor=YzoxOjI", "cursor=!", "limit=0", "order=x", "after=-1"} {
		f.do("GET", path("/v1/conversations/%d/entries?%s", c.ID, query), nil).problem(400, "invalid")
	}
	f.do("GET", "/v1/conversations/99/entries", nil).problem(404, "not_found")
	var page server.EntryPage
	f.do("GET", path("/v1/conversations/%d/entries", c.ID), nil).into(200, &page)
	for _, e := range page.Items {
		require.NotNil(t, e.CreatedAt)
	}
}
