package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func decode(t *testing.T, text string, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), v), text)
}

// chat runs wp-durable chat to its end.
func chat(t *testing.T, environ map[string]string, input string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(t, environ, append([]string{"chat"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Start())
	timer := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

var conversationID = regexp.MustCompile(`conversation (\d+)`)

// (S1.1) Without a server the chat embeds one; with one it talks to that; it
// resumes a conversation by id.
func TestChat(t *testing.T) {
	t.Parallel()
	data := folder(t)
	env := defaults(data, "WP_DURABLE_TOKEN", "", "WP_DURABLE_FAUX_SCRIPT", script(t, `{"rules":[
		{"when":"OUTPUT","text":"the tool ran"},
		{"when":"tool","toolCalls":[{"name":"bash","arguments":{"command":"echo OUTPUT"}}]},
		{"when":"fail","error":{"class":"quota","message":"no money"}},
		{"when":"","text":"hello from the script"}]}`))
	out, errOut, status := chat(t, env, "hi\nuse a tool\n")
	require.Equal(t, 0, status, errOut)
	require.Equal(t, "hello from the script\nthe tool ran\n", out)
	require.Contains(t, errOut, `> bash {"command":"echo OUTPUT"}`)
	id := conversationID.FindStringSubmatch(errOut)[1]

	out, errOut, status = chat(t, env, "", "-c", id, "one", "message")
	require.Equal(t, 0, status, errOut)
	require.Equal(t, "hello from the script\n", out)
	require.Contains(t, errOut, "resumed conversation "+id)

	p := serve(t, env)
	kept, err := os.ReadFile(data + "/token")
	require.NoError(t, err)
	p.token = strings.TrimSpace(string(kept))
	out, errOut, status = chat(t, env, "", "-c", id, "again")
	require.Equal(t, 0, status, errOut)
	require.Equal(t, "hello from the script\n", out)
	var conv struct{ Head int64 }
	p.call(200, "GET", "/v1/conversations/"+id, nil, &conv)
	require.Positive(t, conv.Head)

	_, errOut, status = chat(t, env, "", "fail")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "no money")
	_, errOut, status = chat(t, env, "", "-c", "999999", "x")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "not found")
	_, errOut, status = chat(t, defaults(data, "WP_DURABLE_TOKEN", "another-token"), "", "x")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "token is wrong")
}

// (S1.1) After a crash something else may have the server's port: it gets no
// token, and the chat embeds a server.
func TestChat_StaleServer(t *testing.T) {
	t.Parallel()
	data := folder(t)
	env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", script(t, `{"rules":[{"when":"","text":"hello from the script"}]}`))
	p := serve(t, env)
	p.kill()
	require.FileExists(t, data+"/server.json")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	seen := make(chan string, 100)
	thief := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.Path + " " + r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"ok":true}`)
	})}
	served := make(chan error, 1)
	go func() { served <- thief.Serve(l) }()
	out, errOut, status := chat(t, env, "", "hi")
	require.Equal(t, 0, status, errOut)
	require.Equal(t, "hello from the script\n", out)
	require.NoError(t, thief.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	close(seen)
	for request := range seen {
		require.Equal(t, "/healthz ", request)
	}
}

// (S1.1) A chat says whom it talks to, and talks to nobody else than it was
// told to.
func TestChat_Where(t *testing.T) {
	t.Parallel()
	data, elsewhere := folder(t), folder(t)
	answers := script(t, `{"rules":[{"when":"","text":"hello from the script"}]}`)
	env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", answers, "WP_DURABLE_TOKEN", "")
	other := defaults(elsewhere, "WP_DURABLE_FAUX_SCRIPT", answers, "WP_DURABLE_TOKEN", "")
	const embedded = "no server here, running the engine in this program"

	_, errOut, status := chat(t, env, "", "hi")
	require.Equal(t, 0, status, errOut)
	require.Contains(t, errOut, embedded)
	_, errOut, status = chat(t, env, "", "--token", "some-other-token", "hi")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "--token: no server of the data folder")

	p := serve(t, env)
	kept, err := os.ReadFile(data + "/token")
	require.NoError(t, err)
	p.token = strings.TrimSpace(string(kept))
	addr := strings.TrimPrefix(p.base, "http://")
	for _, args := range [][]string{{"hi"}, {"--addr", addr, "hi"}, {"--addr=", "--token=", "hi"}} {
		_, errOut, status = chat(t, env, "", args...)
		require.Equal(t, 0, status, errOut)
		require.Contains(t, errOut, "connected to "+p.base+"\n")
	}
	_, errOut, status = chat(t, other, "", "--addr", addr, "hi")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "give its token")
	out, errOut, status := chat(t, other, "", "--addr", addr, "--token", p.token, "hi")
	require.Equal(t, 0, status, errOut)
	require.Contains(t, errOut, "connected to "+p.base+"\n")
	require.Equal(t, "hello from the script\n", out)
	require.NoFileExists(t, elsewhere+"/wp-durable.db", "nothing was run here")
	p.kill()
	_, errOut, status = chat(t, env, "", "--addr", addr, "hi")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "--addr: no server at "+addr)
	require.NotContains(t, errOut, embedded)
}

// (S1.1) Ctrl-C aborts the run, a second one leaves.
func TestChat_Interrupt(t *testing.T) {
	t.Parallel()
	env := defaults(folder(t), "WP_DURABLE_FAUX_SCRIPT", script(t, hanging))
	cmd := command(t, env, "chat")
	stderr, exited := newLog(), make(chan struct{})
	cmd.Stdout, cmd.Stderr = io.Discard, stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	_, err = io.WriteString(in, "go\n")
	require.NoError(t, err)
	require.True(t, stderr.wait(t, "so-far", exited), stderr)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.True(t, stderr.wait(t, "no answer: aborted", exited), stderr)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-exited:
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr)
	case <-time.After(deadline):
		t.Fatal("the chat does not end")
	}
}
