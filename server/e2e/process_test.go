package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server"
)

const (
	token  = "the-token-of-the-tests"
	apiKey = "sk-ant-very-secret-key-of-tests"
)

// deadline bounds every wait, so that a hang is a failure.
const deadline = time.Minute

// folder returns a data folder that agent users can enter: the folders that
// testing makes are closed to them.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wp-durable-data")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

var agents atomic.Int64

// agentUID returns a user id for commands that no other test uses, also none
// of another package that runs now.
func agentUID() string {
	const first, count = 1_000_000, 500_000
	return fmt.Sprint(first + (int64(os.Getpid())*16+agents.Add(1))%count)
}

// script writes a faux script and returns its path.
func script(t *testing.T, text string) string {
	t.Helper()
	require.True(t, json.Valid([]byte(text)), text)
	path := filepath.Join(t.TempDir(), "script.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// process is a running wp-durable serve.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	base   string
	token  string
	stdout *log
	stderr *log
	exited chan struct{}
}

// log keeps what a process prints and lets tests wait for a text.
type log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newLog() *log { return &log{changed: make(chan struct{})} }

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns once the text has been printed, false when the process ended
// first.
func (l *log) wait(t *testing.T, text string, exited <-chan struct{}) bool {
	t.Helper()
	timeout := time.After(deadline)
	for {
		l.mu.Lock()
		found, changed := strings.Contains(l.text.String(), text), l.changed
		l.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-exited:
			return strings.Contains(l.String(), text)
		case <-timeout:
			t.Fatalf("%q was not printed: %s", text, l)
		}
	}
}

// command returns the program with nothing in its environment but PATH and
// what is given.
func command(t *testing.T, environ map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	for name, value := range environ {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// defaults returns the environment of a scripted server on the data folder.
func defaults(dataDir string, more ...string) map[string]string {
	env := map[string]string{
		"WP_DURABLE_ADDR": "127.0.0.1:0", "WP_DURABLE_DATA_DIR": dataDir, "WP_DURABLE_TOKEN": token,
		"WP_DURABLE_FAUX": "1", "WP_DURABLE_TEST_UNISOLATED": "1",
	}
	for i := 0; i+1 < len(more); i += 2 {
		env[more[i]] = more[i+1]
		if more[i+1] == "" {
			delete(env, more[i])
		}
	}
	return env
}

// launch starts the server and returns at once.
func launch(t *testing.T, environ map[string]string, args ...string) *process {
	t.Helper()
	p := &process{t: t, token: token, stdout: newLog(), stderr: newLog(), exited: make(chan struct{})}
	p.cmd = command(t, environ, append([]string{"serve"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("server %d: %s\n%s", p.cmd.Process.Pid, p.stdout, p.stderr)
		}
	})
	return p
}

// serve starts the server and returns when it listens.
func serve(t *testing.T, environ map[string]string, args ...string) *process {
	t.Helper()
	p := launch(t, environ, args...)
	require.True(t, p.listening(), "%s%s", p.stdout, p.stderr)
	return p
}

// listening waits until the server listens, false when it ended first.
func (p *process) listening() bool {
	const mark = "listening http://"
	if !p.stdout.wait(p.t, "Try it:", p.exited) {
		return false
	}
	_, rest, _ := strings.Cut(p.stdout.String(), mark)
	addr, _, _ := strings.Cut(rest, "\n")
	p.base = "http://" + addr
	return true
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// wait returns the exit status, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(deadline):
		p.t.Fatalf("the server does not end")
		return 0
	}
}

// stop ends the server as an operator does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.Equal(p.t, 0, p.wait(), "%s", p.stderr)
}

// kill ends the server as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// httpClient keeps no connection, so that none outlives a server.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) send(method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, p.base+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return httpClient.Do(req)
}

// try sends a request and returns status and body; an error when there was no
// whole answer.
func (p *process) try(method, path string, body any) (int, string, error) {
	res, err := p.send(method, path, body)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NotContains(p.t, string(text), apiKey)
	return res.StatusCode, string(text), err
}

// call sends a request that must be answered with the status, and decodes the
// answer.
func (p *process) call(status int, method, path string, body, out any) string {
	p.t.Helper()
	got, text, err := p.try(method, path, body)
	require.NoError(p.t, err)
	require.Equal(p.t, status, got, text)
	if out != nil {
		require.NoError(p.t, json.Unmarshal([]byte(text), out), text)
	}
	return text
}

func (p *process) submit(requestID, text string) server.Submission {
	p.t.Helper()
	var s server.Submission
	p.call(202, "POST", "/v1/submit", map[string]any{"requestId": requestID, "content": text}, &s)
	return s
}

// settled waits until the submission has ended.
func (p *process) settled(id durable.SubmissionID) server.Submission {
	p.t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		var s server.Submission
		p.call(200, "GET", fmt.Sprintf("/v1/submissions/%d/wait", id), nil, &s)
		if s.SettledAt != nil {
			return s
		}
	}
	p.t.Fatalf("submission %d does not end", id)
	return server.Submission{}
}

// entries returns the whole history of a conversation.
func (p *process) entries(id durable.ConversationID) []entry {
	p.t.Helper()
	var page struct{ Items []entry }
	p.call(200, "GET", fmt.Sprintf("/v1/conversations/%d/entries?limit=500", id), nil, &page)
	return page.Items
}

// entry is what tests look at of an entry.
type entry struct {
	ID    int64  `json:"id"`
	Kind  string `json:"kind"`
	Model []struct {
		Role       string `json:"role"`
		ToolCallID string `json:"toolCallId"`
		IsError    bool   `json:"isError"`
		StopReason string `json:"stopReason"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
			ID   string `json:"id"`
		} `json:"content"`
	} `json:"model"`
	Data json.RawMessage `json:"data"`
}

func (e *entry) text() string {
	var b strings.Builder
	for _, m := range e.Model {
		for _, c := range m.Content {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// events reads a stream of events.
type events struct {
	t   *testing.T
	res *http.Response
	r   *bufio.Reader
}

func (p *process) stream(path string) *events {
	p.t.Helper()
	e, err := p.tryStream(path)
	require.NoError(p.t, err)
	return e
}

// tryStream opens a stream of a server that may be dying.
func (p *process) tryStream(path string) (*events, error) {
	res, err := p.send("GET", path, nil)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(p.t, 200, res.StatusCode)
	return &events{p.t, res, bufio.NewReader(res.Body)}, nil
}

// until returns the data of the first event of that name, false when the
// stream ended first.
func (e *events) until(name string) (string, bool) {
	e.t.Helper()
	current := ""
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return "", false
		}
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case field == "event":
			current = value
		case field == "data" && current == name:
			return value, true
		}
	}
}
