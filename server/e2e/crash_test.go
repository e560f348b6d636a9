package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/server"
)

// requireIsolation fails where everything should be installed, and skips where
// commands cannot be isolated.
func requireIsolation(t *testing.T, p *process) {
	t.Helper()
	var health server.Health
	p.call(200, "GET", "/healthz", nil, &health)
	if health.Isolation == server.IsolationOK {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("commands are not isolated here: %s", p.stdout)
	}
	t.Skipf("commands are not isolated here: %s", p.stdout)
}

// running returns the processes whose command line contains text.
func running(t *testing.T, text string) (pids []int) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		if strings.Contains(string(cmdline), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// (S8, S6.5, E2.6) A server that is killed in the middle of a command: the
// command ran once and nothing of it goes on, its result says so with the
// output so far, and the input is answered once.
func TestCrash_InTheMiddleOfBash(t *testing.T) {
	t.Parallel()
	data := folder(t)
	mark := fmt.Sprintf("3600.%d", time.Now().UnixNano())
	env := defaults(data, "WP_DURABLE_TEST_UNISOLATED", "", "WP_DURABLE_AGENT_UIDS", agentUID(), "WP_DURABLE_FAUX_SCRIPT", script(t, fmt.Sprintf(`{"rules":[
		{"when":"interrupted","text":"recovered"},
		{"when":"go","toolCalls":[{"name":"bash","arguments":{"command":"echo ran >> count; echo so-far; (sleep %s; echo late >> count) & sleep %s"}}]}]}`, mark, mark)))
	p := serve(t, env)
	requireIsolation(t, p)
	sub := p.submit("the-request", "go")
	_, ok := p.stream(fmt.Sprintf("/v1/submissions/%d/stream", sub.ID)).until("tool_output")
	require.True(t, ok)
	require.NotEmpty(t, running(t, mark))
	p.kill()

	p = serve(t, env)
	require.Empty(t, running(t, mark), "nothing of an interrupted command goes on")
	done := p.settled(sub.ID)
	require.Equal(t, "recovered", done.Answer.Text)

	var again server.Submission
	p.call(200, "POST", "/v1/submit", map[string]any{"requestId": "the-request", "content": "go"}, &again)
	require.Equal(t, sub.ID, again.ID)
	require.Equal(t, sub.ConversationID, again.ConversationID)

	users, results := 0, 0
	for _, e := range p.entries(sub.ConversationID) {
		switch e.Kind {
		case "pi.user":
			users++
		case "pi.tool-result":
			results++
			require.True(t, e.Model[0].IsError)
			require.Contains(t, e.text(), "so-far")
			require.Contains(t, e.text(), "interrupted")
		}
	}
	require.Equal(t, 1, users)
	require.Equal(t, 1, results)
	count, err := os.ReadFile(filepath.Join(data, "work", fmt.Sprint(sub.ConversationID), "count"))
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(count))
}

// scripted is a run of three turns: two commands at once, then one that reads,
// then the answer. What was cut off is answered too.
const scripted = `{"rules":[
	{"when":"STEP-TWO","text":"all done"},
	{"when":"interrupted","text":"all done"},
	{"when":"STEP-ONE","toolCalls":[{"name":"read","arguments":{"path":"one"}},{"name":"bash","arguments":{"command":"echo x >> two; echo STEP-TWO"}}]},
	{"when":"begin","thinking":"first","text":"Let me begin.","toolCalls":[{"name":"bash","arguments":{"command":"echo x >> one; echo STEP-ONE"}},{"name":"bash","arguments":{"command":"echo x >> zero; echo STEP-ONE"}}]}]}`

// (E20, E2) A process that is killed at any commit of a run leaves a store that
// goes on by itself.
func TestCrash_AtEveryCommit(t *testing.T) {
	t.Parallel()
	path := script(t, scripted)
	for _, before := range []string{"", "before:"} {
		t.Run("kill "+before, func(t *testing.T) {
			t.Parallel()
			crashes := 0
			for n := 1; ; n++ {
				if testing.Short() && n%4 != 1 {
					continue
				}
				if !crashAt(t, path, before, n) {
					break
				}
				crashes++
			}
			t.Logf("%d commits", crashes)
			if !testing.Short() {
				require.Greater(t, crashes, 5)
			}
		})
	}
}

// crashAt runs the script with a crash at the nth commit and checks what is
// left of it. It reports whether there was a crash before the run ended.
func crashAt(t *testing.T, path, before string, n int) bool {
	t.Helper()
	data := folder(t)
	env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", path)
	body := map[string]any{"requestId": "r", "content": "begin"}
	env["WP_DURABLE_TEST_CRASH_AT"] = fmt.Sprintf("%s%d", before, n)
	p := launch(t, env)
	acknowledged, ended := server.Submission{}, false
	if p.listening() {
		if status, text, err := p.try("POST", "/v1/submit", body); err == nil {
			require.Equal(t, 202, status, text)
			decode(t, text, &acknowledged)
			if stream, err := p.tryStream(fmt.Sprintf("/v1/submissions/%d/stream", acknowledged.ID)); err == nil {
				_, ended = stream.until("done")
			}
		}
	}
	if ended {
		p.stop()
	} else {
		require.Equal(t, -1, p.wait(), "killed: %s", p.stderr)
	}

	delete(env, "WP_DURABLE_TEST_CRASH_AT")
	p = serve(t, env)
	status, text, err := p.try("POST", "/v1/submit", body)
	require.NoError(t, err)
	require.Contains(t, []int{200, 202}, status, text)
	var sub server.Submission
	decode(t, text, &sub)
	if acknowledged.ID != 0 {
		require.Equal(t, 200, status, "an acknowledged submission is known")
		require.Equal(t, acknowledged.ID, sub.ID)
		require.Equal(t, acknowledged.ConversationID, sub.ConversationID)
	}
	name := fmt.Sprintf("crash %s%d", before, n)
	done := p.settled(sub.ID)
	require.Equal(t, "done", done.Status, "%s: %s %s", name, done.Reason, done.Detail)
	require.Equal(t, "all done", done.Answer.Text, name)
	checkInvariants(t, p, data, sub, name)
	p.stop()
	return !ended
}

// checkInvariants checks what must hold of the run whatever has crashed.
func checkInvariants(t *testing.T, p *process, data string, sub server.Submission, name string) {
	t.Helper()
	var page server.ConversationPage
	p.call(200, "GET", "/v1/conversations", nil, &page)
	require.Len(t, page.Items, 1, name)
	require.False(t, page.Items[0].Busy, name)

	users, calls, results := 0, map[string]int{}, map[string]int{}
	interrupted := 0
	last := int64(0)
	for _, e := range p.entries(sub.ConversationID) {
		require.Greater(t, e.ID, last, name)
		last = e.ID
		if e.Kind == "pi.user" {
			users++
		}
		for _, m := range e.Model {
			switch m.Role {
			case "assistant":
				if m.StopReason == "aborted" || m.StopReason == "error" {
					continue
				}
				for _, c := range m.Content {
					if c.Type == "toolCall" {
						calls[c.ID]++
					}
				}
			case "toolResult":
				results[m.ToolCallID]++
				if strings.Contains(e.text(), "interrupted") {
					interrupted++
				}
			}
		}
	}
	require.Equal(t, 1, users, name)
	require.Equal(t, calls, results, "%s: each call has exactly one result", name)
	for id, n := range calls {
		require.Equal(t, 1, n, "%s: call %s", name, id)
	}
	// A command runs at most once, and once for sure when nothing was cut off.
	for _, file := range []string{"zero", "one", "two"} {
		content, err := os.ReadFile(filepath.Join(data, "work", fmt.Sprint(sub.ConversationID), file))
		if err != nil {
			require.Positive(t, interrupted, "%s: %v", name, err)
			continue
		}
		require.Equal(t, "x\n", string(content), "%s: %s", name, file)
	}
}
