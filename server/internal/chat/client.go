package chat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server"
)

// Client calls a server.
type Client struct {
	Base  string // "http://host:port"
	Token string
	HTTP  *http.Client
}

// Error is an answer that is a problem.
type Error struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"error"`
}

// Error returns the server's words.
func (e *Error) Error() string { return e.Message }

func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	const most = 64 << 10
	problem := &Error{Status: res.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(res.Body, most)) // what came is enough
	if json.Unmarshal(text, problem) != nil || problem.Message == "" {
		problem.Message = res.Status
	}
	return nil, problem
}

func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	res, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Conversation returns a conversation; with id 0 a new one.
func (c *Client) Conversation(ctx context.Context, id int64) (*server.Conversation, error) {
	method, path := http.MethodGet, fmt.Sprintf("/v1/conversations/%d", id)
	if id == 0 {
		method, path = http.MethodPost, "/v1/conversations"
	}
	// Only what is shown: the whole type is for writing.
	var conv struct {
		ID    durable.ConversationID `json:"id"`
		Title string                 `json:"title"`
		Agent server.Agent           `json:"agent"`
	}
	if err := c.call(ctx, method, path, nil, &conv); err != nil {
		return nil, err
	}
	out := &server.Conversation{Agent: conv.Agent}
	out.ID, out.Title = conv.ID, conv.Title
	return out, nil
}

// Submit hands a message to a conversation.
func (c *Client) Submit(ctx context.Context, id durable.ConversationID, requestID, text string) (*server.Submission, error) {
	var sub server.Submission
	body := map[string]any{"requestId": requestID, "content": text}
	return &sub, c.call(ctx, http.MethodPost, fmt.Sprintf("/v1/conversations/%d/submit", id), body, &sub)
}

// Said is what one side said in a conversation.
type Said struct{ Who, Text string }

// LastExchange returns the last message of a user and the last answer to it, as
// far as they are among the newest entries.
func (c *Client) LastExchange(ctx context.Context, id durable.ConversationID) ([]Said, error) {
	var page struct {
		Items []struct {
			Model []struct {
				Role    string `json:"role"`
				Content []struct {
					Type string `json:"type"`
					Text string `json:"text"`
				} `json:"content"`
			} `json:"model"`
		} `json:"items"`
	}
	if err := c.call(ctx, http.MethodGet, fmt.Sprintf("/v1/conversations/%d/entries?order=desc&limit=50", id), nil, &page); err != nil {
		return nil, err
	}
	var answer []Said
	for _, e := range page.Items {
		for _, m := range e.Model {
			text := ""
			for _, b := range m.Content {
				if b.Type == "text" {
					text += b.Text
				}
			}
			switch {
			case text == "":
			case m.Role == "user":
				return append([]Said{{"you", text}}, answer...), nil
			case m.Role == "assistant" && answer == nil:
				answer = []Said{{"model", text}}
			}
		}
	}
	return answer, nil
}

// Abort ends what goes on in a conversation.
func (c *Client) Abort(ctx context.Context, id durable.ConversationID) error {
	var res server.AbortResult
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/v1/conversations/%d/abort", id), nil, &res)
}

// errBroken: a stream ended before its last event.
var errBroken = errors.New("stream ended early")

// Stream calls show with each event of a submission's stream until done.
func (c *Client) Stream(ctx context.Context, id durable.SubmissionID, show func(name string, data []byte) error) error {
	res, err := c.send(ctx, http.MethodGet, fmt.Sprintf("/v1/submissions/%d/stream", id), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	var name string
	var data []byte
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		field, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value...)
		case field == "" && value == "" && name != "":
			if err := show(name, data); err != nil {
				return err
			}
			if name == "done" {
				return nil
			}
			name, data = "", nil
		}
	}
}

// Pipe is a listener inside the process, and the way to it.
type Pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipe returns a listener that only Dial reaches.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept waits for a connection.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr returns a name.
func (p *Pipe) Addr() net.Addr { return pipeAddr{} }

// Dial connects to the listener.
func (p *Pipe) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	theirs, ours := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
