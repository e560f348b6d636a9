// Killed shows what the server is for: it starts the server, lets the demo
// model run a command, kills the server with kill -9 in the middle of it,
// starts it again and shows what is there.
//
//	go run ./examples/killed
//
// Everything it prints happened: the server is the real program, in a folder
// of its own that is removed at the end.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// errToolsOff: the server found no way to isolate commands on this machine.
var errToolsOff = errors.New("the server offers no tools here")

const (
	token   = "a-token-for-the-example"
	request = "killed-1"
	// The command writes one line a round to a file that outlives it, so that
	// it can be seen how often each round ran.
	prompt = "run `for i in 1 2 3 4 5 6 7 8; do echo tick $i; echo $i >> rounds.txt; sleep 1; done`"
)

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "wp-durable-killed")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // commands run as another user
		return err
	}
	program := filepath.Join(dir, "wp-durable")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/wp-durable/wp-durable/server/cmd/wp-durable").CombinedOutput(); err != nil {
		return fmt.Errorf("build the server: %w\n%s", err, text)
	}
	data := filepath.Join(dir, "data")
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

	p := &printer{say: say}
	say("$ wp-durable serve")
	s, err := start(ctx, program, data)
	if err != nil {
		return err
	}
	defer func() { s.kill() }()
	if !strings.Contains(s.banner, "tools     on") {
		return fmt.Errorf("%w:\n%s", errToolsOff, s.banner)
	}
	first, err := s.submit(ctx)
	if err != nil {
		return err
	}
	say("user  %s\n      submission %d in conversation %d", prompt, first.ID, first.ConversationID)
	err = s.stream(ctx, first.ID, func(event string, data streamData) bool {
		p.show(event, data)
		return !strings.Contains(data.Delta, "tick 3")
	})
	if err != nil {
		return err
	}

	say("\n$ kill -9 %d", s.cmd.Process.Pid)
	s.kill()

	say("$ wp-durable serve")
	if s, err = start(ctx, program, data); err != nil {
		return err
	}
	again, err := s.submit(ctx)
	if err != nil {
		return err
	}
	say("      the same request id again: submission %d in conversation %d", again.ID, again.ConversationID)
	if again.ID != first.ID {
		return fmt.Errorf("the request was admitted twice: %d and %d", first.ID, again.ID)
	}
	err = s.stream(ctx, first.ID, func(event string, data streamData) bool {
		p.show(event, data)
		return event != "done"
	})
	if err != nil {
		return err
	}

	var entries struct {
		Items []struct {
			ID   int64  `json:"id"`
			Kind string `json:"kind"`
		} `json:"items"`
	}
	if err := s.get(ctx, fmt.Sprintf("/v1/conversations/%d/entries", first.ConversationID), &entries); err != nil {
		return err
	}
	say("\nthe transcript:")
	for _, e := range entries.Items {
		say("  %4d %s", e.ID, e.Kind)
	}
	rounds, err := os.ReadFile(filepath.Join(data, "work", fmt.Sprint(first.ConversationID), "rounds.txt"))
	if err != nil {
		return err
	}
	say("rounds.txt, written by the command: %s", strings.Join(strings.Fields(string(rounds)), " "))
	return nil
}

// printer prints the steps of an answer, a message at its end.
type printer struct {
	say  func(format string, args ...any)
	text string
}

func (p *printer) show(event string, d streamData) {
	say := p.say
	switch event {
	case "message_start":
		p.text = ""
	case "text":
		p.text += d.Delta
	case "message_end":
		p.flush()
	case "tool_call":
		p.flush()
		say("call  %s %s", d.Name, d.Arguments)
	case "tool_output":
		for line := range strings.Lines(d.Delta) {
			say("      | %s", strings.TrimSpace(line))
		}
	case "tool_result":
		say("      result, isError %v:", d.IsError)
		for _, c := range d.Content {
			for line := range strings.Lines(c.Text) {
				say("      > %s", strings.TrimRight(line, "\n"))
			}
		}
	case "done":
		say("      submission %d is %s", d.Submission.ID, d.Submission.Status)
	}
}

// flush prints what the model has said.
func (p *printer) flush() {
	for line := range strings.Lines(p.text) {
		p.say("model %s", strings.TrimRight(line, "\n"))
	}
	p.text = ""
}

// server is a running server.
type server struct {
	cmd    *exec.Cmd
	url    string
	banner string
}

func start(ctx context.Context, program, data string) (*server, error) {
	cmd := exec.CommandContext(ctx, program, "serve", "--addr=127.0.0.1:0", "--model=demo/demo", "--data-dir="+data)
	cmd.Env = append(os.Environ(), "WP_DURABLE_TOKEN="+token)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		s.banner += lines.Text() + "\n"
		if rest, ok := strings.CutPrefix(lines.Text(), "listening"); ok {
			s.url = strings.TrimSpace(rest)
		}
		if strings.HasPrefix(lines.Text(), "tools") {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return s, nil
		}
	}
	s.kill()
	return nil, fmt.Errorf("the server did not start:\n%s%s", s.banner, stderr.String())
}

// kill ends the server as a crash would: nothing of it gets to run.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // fails when it has ended
	_ = s.cmd.Wait()
}

type submission struct {
	ID             int64  `json:"id"`
	ConversationID int64  `json:"conversationId"`
	Status         string `json:"status"`
}

func (s *server) submit(ctx context.Context) (submission, error) {
	body, err := json.Marshal(map[string]string{"requestId": request, "content": prompt})
	if err != nil {
		return submission{}, err
	}
	var sub submission
	return sub, s.do(ctx, http.MethodPost, "/v1/submit", body, func(r io.Reader) error { return json.NewDecoder(r).Decode(&sub) })
}

func (s *server) get(ctx context.Context, path string, out any) error {
	return s.do(ctx, http.MethodGet, path, nil, func(r io.Reader) error { return json.NewDecoder(r).Decode(out) })
}

// streamData is what this program reads of the stream's events.
type streamData struct {
	Delta     string          `json:"delta"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	IsError   bool            `json:"isError"`
	Content   []struct {
		Text string `json:"text"`
	} `json:"content"`
	Submission submission `json:"submission"`
}

// stream reads a submission's events until each returns false.
func (s *server) stream(ctx context.Context, id int64, each func(event string, data streamData) bool) error {
	return s.do(ctx, http.MethodGet, fmt.Sprintf("/v1/submissions/%d/stream", id), nil, func(r io.Reader) error {
		event := ""
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var data streamData
			if err := json.Unmarshal([]byte(text), &data); err != nil {
				return err
			}
			if !each(event, data) {
				return nil
			}
		}
		return errors.Join(errors.New("the stream ended early"), lines.Err())
	})
}

func (s *server) do(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("content-type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return read(resp.Body)
}
