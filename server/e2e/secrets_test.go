package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// (S1.3) A setting that holds a secret would be lost: the start says so.
func TestSecrets_InSetting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := defaults(filepath.Join(dir, token), "SOME_OTHER", "x"+token)
	for _, args := range [][]string{nil, {"--token", token}} {
		if args != nil {
			delete(env, "WP_DURABLE_TOKEN")
		}
		p := launch(t, env, args...)
		require.Equal(t, 1, p.wait())
		require.Contains(t, p.stderr.String(), "WP_DURABLE_DATA_DIR: its value holds that of WP_DURABLE_TOKEN")
		require.NotContains(t, p.stdout.String()+p.stderr.String(), token)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// (S1.3) No secret is in what others can see of the process, in a command's
// environment, in any body, log or file.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"environment", "flags"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			data := folder(t)
			half := len(apiKey) / 2
			// The model makes a command print the secret, and its environment.
			rules := fmt.Sprintf(`{"rules":[
				{"when":"END-OF-OUTPUT","text":"done"},
				{"when":"go","toolCalls":[{"name":"bash","arguments":{"command":"env; printf %%s%%s '%s' '%s'; echo; cat /proc/$PPID/environ | tr '\\0' '\\n'; echo END-OF-OUTPUT"}}]}]}`,
				apiKey[:half], apiKey[half:])
			env := defaults(data, "WP_DURABLE_FAUX_SCRIPT", script(t, rules), "WP_DURABLE_LOG", "json", "COPY_OF_IT", "x "+apiKey)
			var args []string
			if mode == "flags" {
				args = []string{"--token=" + token, "--anthropic-api-key", apiKey}
				delete(env, "WP_DURABLE_TOKEN")
				delete(env, "COPY_OF_IT")
			} else {
				env["ANTHROPIC_API_KEY"] = apiKey
			}
			p := serve(t, env, args...)
			for _, name := range []string{"environ", "cmdline"} {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
				require.NoError(t, err)
				require.NotEmpty(t, text)
				require.NotContains(t, string(text), apiKey, name)
				require.NotContains(t, string(text), token, name)
			}
			sub := p.submit("r-"+apiKey, "go "+apiKey)
			require.Equal(t, "done", p.settled(sub.ID).Answer.Text)
			var output string
			for _, e := range p.entries(sub.ConversationID) {
				if e.Kind == "pi.tool-result" {
					output = e.text()
				}
			}
			require.Contains(t, output, "HOME=")
			require.Contains(t, output, "[redacted]", "the command printed it")
			require.NotContains(t, output, "COPY_OF_IT")
			own, _, _ := strings.Cut(output, "[redacted]")
			require.NotContains(t, own, "WP_DURABLE", "the command's own environment")
			require.NotContains(t, output, token)
			p.call(200, "GET", "/v1/status", nil, nil)
			p.call(200, "GET", "/v1/test/faux/requests", nil, nil)
			p.stop()
			require.NotContains(t, p.stdout.String()+p.stderr.String(), apiKey)
			if mode == "environment" {
				require.Contains(t, p.stderr.String(), "COPY_OF_IT")
			}
			// The scripted call has two halves; the whole is in no file.
			require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				content, err := os.ReadFile(path)
				require.NotContains(t, string(bytes.ToLower(content)), apiKey, path)
				if !strings.HasSuffix(path, "/token") {
					require.NotContains(t, string(content), token, path)
				}
				return err
			}))
		})
	}
}
