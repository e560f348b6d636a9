package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/server"
)

// hanging makes a command print and then wait, and answers when it was cut off.
const hanging = `{"rules":[
	{"when":"interrupted","text":"recovered"},
	{"when":"go","text":"Let me see.","toolCalls":[{"name":"bash","arguments":{"command":"echo so-far; exec sleep 3600"}}]}]}`

// (S1.4) On a signal streams say bye, long polls answer, what tools printed is
// kept, and the next start goes on.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			data := folder(t)
			env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", script(t, hanging))
			p := serve(t, env)
			sub := p.submit("r", "go")
			stream := p.stream(fmt.Sprintf("/v1/submissions/%d/stream", sub.ID))
			_, ok := stream.until("tool_output")
			require.True(t, ok)
			polled := make(chan string, 1)
			go func() {
				_, body, err := p.try("GET", fmt.Sprintf("/v1/submissions/%d/wait", sub.ID), nil)
				polled <- fmt.Sprint(body, err)
			}()
			for {
				var st server.Status
				p.call(200, "GET", "/v1/status", nil, &st)
				if st.Counts.Waits == 1 {
					break
				}
			}
			p.signal(sig)
			bye, ok := stream.until("bye")
			require.True(t, ok)
			require.Contains(t, bye, "retryMs")
			require.Contains(t, <-polled, `"timedOut":true`)
			require.Equal(t, 0, p.wait(), p.stderr)
			require.NotContains(t, p.stderr.String(), "level=ERROR")

			p = serve(t, env)
			require.Equal(t, "recovered", p.settled(sub.ID).Answer.Text)
			var result string
			for _, e := range p.entries(sub.ConversationID) {
				if e.Kind == "pi.tool-result" {
					result += e.text()
				}
			}
			require.Contains(t, result, "so-far")
			require.Contains(t, result, "interrupted")
		})
	}
}

// big is a script with an answer that no connection buffers.
func big(t *testing.T, command string) string {
	t.Helper()
	return script(t, fmt.Sprintf(`{"rules":[
		{"when":"big","text":%q},
		{"when":"go","toolCalls":[{"name":"bash","arguments":{"command":%q}}]}]}`, strings.Repeat("big", 6<<20), command))
}

// stall opens the stream of an answer that is big and stops to read in the
// middle of it: this holds a shutdown until the connection is closed.
func stall(t *testing.T, p *process) {
	t.Helper()
	sub := p.submit("big", "big")
	p.settled(sub.ID)
	res, err := p.send("GET", fmt.Sprintf("/v1/submissions/%d/stream", sub.ID), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	r := bufio.NewReaderSize(res.Body, 32<<10)
	for text := ""; !strings.Contains(text, "bigbig"); {
		piece := make([]byte, 32<<10)
		n, err := r.Read(piece)
		require.NoError(t, err)
		text += string(piece[:n])
	}
}

// (S1.4) A second signal ends the process at once.
func TestShutdown_Twice(t *testing.T) {
	t.Parallel()
	p := serve(t, defaults(folder(t), "WP_DURABLE_SHUTDOWN_MS", "600000", "WP_DURABLE_FAUX_SCRIPT", big(t, "true")))
	stall(t, p)
	p.signal(syscall.SIGTERM)
	require.True(t, p.stderr.wait(t, "stopping", p.exited))
	p.signal(syscall.SIGTERM)
	require.Equal(t, 1, p.wait())
}

// (S1.4) The time is limited, also for those who do not end.
func TestShutdown_Limit(t *testing.T) {
	t.Parallel()
	p := serve(t, defaults(folder(t), "WP_DURABLE_SHUTDOWN_MS", "200", "WP_DURABLE_FAUX_SCRIPT", big(t, "true")))
	stall(t, p)
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.wait())
}

// (S1.4) Tool calls are interrupted at once, not when the last client is gone.
func TestShutdown_ToolsAtOnce(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p := serve(t, defaults(folder(t), "WP_DURABLE_SHUTDOWN_MS", "600000", "WP_DURABLE_FAUX_SCRIPT", big(t, "exec 3>"+fifo+"; echo ready >&3; exec sleep 3600")))
	stall(t, p)
	p.submit("go", "go")
	// The command opens it, and it ends with the command.
	alive, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer alive.Close()
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(deadline)))
	line, err := bufio.NewReader(alive).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	p.signal(syscall.SIGTERM)
	const patience = 15 * time.Second // less than a stream's client may stall
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(patience)))
	_, err = alive.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	select {
	case <-p.exited:
		t.Fatal("nothing held the shutdown")
	default:
	}
}

// (S1.5) A request whose body is still being sent is told to come back.
func TestShutdown_Body(t *testing.T) {
	t.Parallel()
	p := serve(t, defaults(folder(t), "WP_DURABLE_SHUTDOWN_MS", "600000"))
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST /v1/conversations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(deadline)))
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, 100, res.StatusCode, "the server reads the body now")
	_, err = io.WriteString(c, `{"title":`)
	require.NoError(t, err)
	p.signal(syscall.SIGTERM)
	res, err = http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 503, res.StatusCode)
	require.Equal(t, "1", res.Header.Get("Retry-After"))
	require.True(t, res.Close)
	var problem struct{ Code string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
	require.Equal(t, "unavailable", problem.Code)
	require.Equal(t, 0, p.wait())
	require.NotContains(t, p.stderr.String(), "cut off")
}

// (S1.5) However many requests are under way, none gets an answer that is not
// proper, and what was acknowledged is there at the next start.
func TestShutdown_UnderLoad(t *testing.T) {
	t.Parallel()
	data := folder(t)
	env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", script(t, `{"rules":[{"when":"","text":"ok","delayMs":1}]}`))
	p := serve(t, env)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[string]server.Submission{}
	refused := 0
	ready := make(chan struct{}, 1)
	for worker := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d", worker, n)
				status, body, err := p.try("POST", "/v1/submit", map[string]any{"requestId": id, "content": "x"})
				if err != nil {
					return // no connection any more
				}
				mu.Lock()
				switch status {
				case 202:
					var s server.Submission
					if json.Unmarshal([]byte(body), &s) == nil {
						acknowledged[id] = s
					}
				case 503:
					refused++
				default:
					t.Errorf("%s: %d %s", id, status, body)
				}
				enough := len(acknowledged) > 50
				mu.Unlock()
				if enough {
					select {
					case ready <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	<-ready
	p.signal(syscall.SIGTERM)
	wg.Wait()
	require.Equal(t, 0, p.wait(), p.stderr)
	require.NotContains(t, p.stderr.String(), "level=ERROR")
	t.Logf("%d acknowledged, %d refused", len(acknowledged), refused)

	p = serve(t, env)
	for id, s := range acknowledged {
		var again server.Submission
		p.call(200, "POST", "/v1/submit", map[string]any{"requestId": id, "content": "x"}, &again)
		require.Equal(t, s.ID, again.ID)
		require.Equal(t, "done", p.settled(s.ID).Status)
	}
}
