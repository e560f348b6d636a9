package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/server"
)

// (S1.1) With nothing configured everything works, offline.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	data := folder(t)
	args := []string{"--addr=127.0.0.1:0", "--data-dir=" + data, "--agent-uids=" + agentUID()}
	p := serve(t, nil, args...)
	out := p.stdout.String()
	require.Contains(t, out, "a scripted demo that works offline")
	require.Contains(t, out, "ANTHROPIC_API_KEY")

	// The printed command has all that is needed.
	found := regexp.MustCompile(`curl (\S+) -H "authorization: Bearer (\S+)" -H 'content-type: application/json' -d '(.*)'`).FindStringSubmatch(out)
	require.NotNil(t, found, out)
	p.token = found[2]
	require.Equal(t, p.base+"/v1/submit", found[1])
	sub := p.submit("hello-1", "Hello")
	require.Contains(t, p.settled(sub.ID).Answer.Text, "demo")

	kept, err := os.ReadFile(filepath.Join(data, "token"))
	require.NoError(t, err)
	require.Equal(t, p.token, strings.TrimSpace(string(kept)))
	for _, name := range []string{"token", "wp-durable.db", "server.json"} {
		info, err := os.Stat(filepath.Join(data, name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), name)
	}
	var health server.Health
	res, err := http.Get(p.base + "/healthz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	p.call(200, "GET", "/healthz", nil, &health)
	require.True(t, health.OK)
	p.stop()
	require.NoFileExists(t, filepath.Join(data, "server.json"))

	// The second time the token is the same and not shown again.
	first := p.token
	p = serve(t, nil, args...)
	require.NotContains(t, p.stdout.String(), first)
	p.token = first
	require.Equal(t, sub.ID, p.settled(sub.ID).ID)
}

// (S1.1, S1.2, E4.6, E4.7) What stops a start is said, with what to do.
func TestStart_Refused(t *testing.T) {
	t.Parallel()
	corrupt := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(corrupt, []byte(strings.Repeat("not a database. ", 1000)), 0o600))
	for _, tt := range []struct {
		name   string
		env    []string
		args   []string
		status int
		want   []string
	}{
		{"unknown variable", []string{"WP_DURABLE_ADR", "x"}, nil, 1, []string{"WP_DURABLE_ADR", "WP_DURABLE_ADDR"}},
		{"bad limit", []string{"WP_DURABLE_LIMIT_WAIT_MS", "30000"}, nil, 1, []string{"WP_DURABLE_LIMIT_WAIT_MS", "29000"}},
		{"PostgreSQL", []string{"WP_DURABLE_DATABASE_URL", "postgres://u:" + apiKey + "@h/d"}, nil, 1, []string{"WP_DURABLE_DATABASE_URL", "not supported yet"}},
		{"short secret", []string{"OPENAI_API_KEY", "short"}, nil, 1, []string{"OPENAI_API_KEY", "8 bytes"}},
		{"corrupt database", []string{"WP_DURABLE_DATABASE_URL", corrupt}, nil, 1, []string{corrupt, "unchanged"}},
		{"unisolated without faux", []string{"WP_DURABLE_FAUX", ""}, nil, 1, []string{"WP_DURABLE_TEST_UNISOLATED", "WP_DURABLE_FAUX"}},
		{"unknown flag", nil, []string{"--adr=x"}, 2, []string{"--adr"}},
		{"secret flag", nil, []string{"--openai-api-key=short"}, 1, []string{"--openai-api-key"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := folder(t)
			p := launch(t, defaults(data, tt.env...), tt.args...)
			require.Equal(t, tt.status, p.wait(), p.stderr)
			for _, want := range tt.want {
				require.Contains(t, p.stderr.String(), want)
			}
			require.NotContains(t, p.stderr.String(), apiKey)
			require.Empty(t, p.stdout.String())
			require.NotContains(t, p.stderr.String(), "goroutine ")
		})
	}
	before, err := os.ReadFile(corrupt)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("not a database. ", 1000), string(before))

	t.Run("database of a newer version", func(t *testing.T) {
		t.Parallel()
		data := folder(t)
		serve(t, defaults(data)).stop()
		path := filepath.Join(data, "wp-durable.db")
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		// SQLite keeps user_version, big-endian, at byte 60 of the file.
		_, err = f.WriteAt([]byte{0, 0, 0x7f, 0xff}, 60)
		require.NoError(t, errors.Join(err, f.Close()))
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		p := launch(t, defaults(data))
		require.Equal(t, 1, p.wait())
		require.Contains(t, p.stderr.String(), "newer version")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), "the file is left alone")
	})

	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		data := folder(t)
		first := serve(t, defaults(data))
		second := launch(t, defaults(data))
		require.Equal(t, 1, second.wait())
		require.Contains(t, second.stderr.String(), "in use")
		require.Contains(t, second.stderr.String(), "WP_DURABLE_DATA_DIR")
		first.call(200, "GET", "/healthz", nil, nil)
	})
}

func TestCommands(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("../../openapi.yaml")
	require.NoError(t, err)
	out, err := command(t, nil, "openapi").Output()
	require.NoError(t, err)
	require.Equal(t, string(committed), string(out))
	out, err = command(t, nil, "openapi", "--3.0", "--format=json").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), `"openapi": "3.0.3"`)
	out, err = command(t, nil, "version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^wp-durable \S+\n$`, string(out))
	for _, args := range [][]string{nil, {"--help"}} {
		out, err = command(t, nil, args...).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "chat")
	}
	out, err = command(t, nil, "serve", "--help").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "WP_DURABLE_LIMIT_WAIT_MS")
}
