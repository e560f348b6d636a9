package config

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, env map[string]string, flags map[string]string) (*Config, error) {
	t.Helper()
	src := Source{Flags: flags, Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	for name := range env {
		src.Names = append(src.Names, name)
	}
	return NewTable().Load(src)
}

func TestTable_LoadDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, map[string]string{"WP_DURABLE_ADDR": "", "HOME": "/"}, nil)
	require.NoError(t, err)
	require.Equal(t, Default(), c)
	require.EqualValues(t, 32000, c.Limits.OutputTokens)
	require.EqualValues(t, 25000, c.Limits.WaitMS)
	require.EqualValues(t, 2<<30, c.Limits.FSize)
	require.InDelta(t, 2, c.Limits.ApifyDailyUSD, 0)
}

// (S1.2)
func TestTable_Load(t *testing.T) {
	t.Parallel()
	c, err := load(t, map[string]string{
		"PORT": "9000", "WP_DURABLE_TOKEN": "a-long-token", "WP_DURABLE_HOSTS": "A.example.com, b", "WP_DURABLE_LOG": "json",
		"WP_DURABLE_ORIGINS": "https://App.example.com/,http://x:3000", "WP_DURABLE_PUBLIC_URL": "https://Agents.example.com/",
		"WP_DURABLE_SHUTDOWN_MS": "500", "WP_DURABLE_MODEL": "openai/gpt/5", "WP_DURABLE_AGENT_UIDS": "7000-7003",
		"WP_DURABLE_FAUX": "1", "WP_DURABLE_TEST_UNISOLATED": "1", "WP_DURABLE_TEST_CRASH_AT": "before:3",
		"WP_DURABLE_TEST_CALLBACK_DELAYS_MS": "1,2", "WP_DURABLE_TEST_RETRY_BASE_MS": "5", "WP_DURABLE_TEST_ALLOW_ADDRS": "127.0.0.1:1",
		"WP_DURABLE_CALLBACK_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "OPENAI_BASE_URL": "http://localhost:1/v1",
		"WP_DURABLE_LIMIT_WAIT_MS": "100", "WP_DURABLE_LIMIT_APIFY_DAILY_USD": "0.5", "WP_DURABLE_DATABASE_URL": "sqlite:///tmp/x.db",
	}, map[string]string{"WP_DURABLE_LOG": "text", "WP_DURABLE_LIMIT_BODY_BYTES": "1000"})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:9000", c.Addr)
	require.Equal(t, []string{"a.example.com", "b"}, c.Hosts)
	require.Equal(t, []string{"https://app.example.com", "http://x:3000"}, c.Origins)
	require.Equal(t, "agents.example.com", c.PublicHost())
	require.Equal(t, "text", c.LogFormat, "a flag wins")
	require.Equal(t, 500*time.Millisecond, c.Shutdown)
	require.Equal(t, "openai/gpt/5", c.Model)
	require.Equal(t, Crash{At: 3, Before: true}, c.Test.Crash)
	require.Equal(t, []time.Duration{time.Millisecond, 2 * time.Millisecond}, c.Test.CallbackDelays)
	require.Equal(t, "/tmp/x.db", c.DatabaseURL)
	require.EqualValues(t, 100, c.Limits.WaitMS)
	require.EqualValues(t, 100, c.Limits.HeartbeatMS, "kept at most WAIT_MS (S7)")
	require.EqualValues(t, 1000, c.Limits.BodyBytes)

	c, err = load(t, map[string]string{"WP_DURABLE_LOG": "json"}, map[string]string{"WP_DURABLE_DATA_DIR": "", "WP_DURABLE_LOG": "", "WP_DURABLE_TOKEN": ""})
	require.NoError(t, err, "an empty flag is none")
	require.Equal(t, "wp-durable-data", c.DataDir)
	require.Equal(t, "json", c.LogFormat)

	c, err = load(t, map[string]string{"PORT": "9000", "WP_DURABLE_ADDR": "[::1]:1"}, nil)
	require.NoError(t, err)
	require.Equal(t, "[::1]:1", c.Addr)
}

// (S1.2, S7) A bad value stops the start with its name; a secret is not shown.
func TestTable_LoadRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, value, want string
	}{
		{"WP_DURABLE_TOEKN", "secret-value", "WP_DURABLE_TOEKN: there is no such variable; did you mean WP_DURABLE_TOKEN?"},
		{"WP_DURABLE_LIMIT_WAITMS", "1", "did you mean WP_DURABLE_LIMIT_WAIT_MS?"},
		{"WP_DURABLE_PORT", "1", "did you mean PORT?"},
		{"WP_DURABLE_ANTHROPIC_API_KY", "1", "did you mean ANTHROPIC_API_KEY?"},
		{"WP_DURABLE_WAIT_MS", "1", "did you mean WP_DURABLE_LIMIT_WAIT_MS?"},
		{"WP_DURABLE_ADDR", "localhost", "WP_DURABLE_ADDR: \"localhost\" is not host:port"},
		{"WP_DURABLE_ADDR", "localhost:x", "is no port"},
		{"PORT", "x", "PORT: \"x\" is no port"},
		{"WP_DURABLE_TOKEN", "short-1", "WP_DURABLE_TOKEN: a secret has at least 8 bytes"},
		{"OPENAI_API_KEY", "short-1", "OPENAI_API_KEY: a secret has at least 8 bytes"},
		{"WP_DURABLE_DATABASE_URL", "postgres://u:secret-value@h/d", "WP_DURABLE_DATABASE_URL: PostgreSQL is not supported yet"},
		{"WP_DURABLE_DATABASE_URL", "mysql://u:secret-value@h/d", "\"mysql\" are not known"},
		{"WP_DURABLE_DATABASE_URL", "a.db?mode=ro", "not the path"},
		{"WP_DURABLE_DATABASE_URL", "file:a.db", "a file: URL is not understood"},
		{"WP_DURABLE_LOG", "xml", "WP_DURABLE_LOG: \"xml\" is not one of text, json"},
		{"WP_DURABLE_HOSTS", "http://a", "not a host name"},
		{"WP_DURABLE_ORIGINS", "https://a/b", "not an origin"},
		{"WP_DURABLE_ORIGINS", "*", "not an origin"},
		{"WP_DURABLE_PUBLIC_URL", "ftp://a", "WP_DURABLE_PUBLIC_URL: not an http or https URL"},
		{"ANTHROPIC_BASE_URL", "https://u:secret-value@a", "must not hold a user or password"},
		{"WP_DURABLE_CALLBACK_SECRET", "secret-value", "WP_DURABLE_CALLBACK_SECRET: not whsec_"},
		{"WP_DURABLE_SHUTDOWN_MS", "0", "WP_DURABLE_SHUTDOWN_MS: \"0\" is not a number of milliseconds"},
		{"WP_DURABLE_MODEL", "gpt", "is not provider/model"},
		{"WP_DURABLE_AGENT_UIDS", "x", "WP_DURABLE_AGENT_UIDS: \"x\" is neither a user id"},
		{"WP_DURABLE_AGENT_UIDS", "2000-x", "neither a user id"},
		{"WP_DURABLE_AGENT_UIDS", "0", "is not between 1000 and 2147483646"},
		{"WP_DURABLE_AGENT_UIDS", "999", "is not between"},
		{"WP_DURABLE_AGENT_UIDS", "1000-2147483647", "is not between"},
		{"WP_DURABLE_AGENT_UIDS", "2001-2000", "ends before it begins"},
		{"WP_DURABLE_AGENT_UIDS", "65534", "nobody"},
		{"WP_DURABLE_AGENT_UIDS", "65000-66000", "nobody"},
		{"WP_DURABLE_LIMIT_NPROC", "15", "WP_DURABLE_LIMIT_NPROC: 15 is below the least value 16"},
		{"WP_DURABLE_FAUX", "maybe", "neither 1 nor 0"},
		{"WP_DURABLE_TEST_UNISOLATED", "1", "only together with WP_DURABLE_FAUX"},
		{"WP_DURABLE_FAUX_SCRIPT", "x", "only together with WP_DURABLE_FAUX"},
		{"WP_DURABLE_TEST_CRASH_AT", "0", "not the number of a commit"},
		{"WP_DURABLE_TEST_CALLBACK_DELAYS_MS", "1,x", "milliseconds"},
		{"WP_DURABLE_TEST_ALLOW_ADDRS", "a", "not host:port"},
		{"WP_DURABLE_LIMIT_WAIT_MS", "29001", "WP_DURABLE_LIMIT_WAIT_MS: 29001 is above the greatest value 29000"},
		{"WP_DURABLE_LIMIT_OUTPUT_TOKENS", "0", "below the least value 1"},
		{"WP_DURABLE_LIMIT_OUTPUT_TOKENS", "many", "not a whole number"},
		{"WP_DURABLE_LIMIT_SUBAGENT_DEPTH", "2", "only 1 works"},
		{"WP_DURABLE_LIMIT_SUBAGENT_DEPTH", "0", "only 1 works"},
		{"WP_DURABLE_LIMIT_BASH_TIMEOUT_MS", "600001", "above"},
		{"WP_DURABLE_LIMIT_APIFY_DAILY_USD", "-1", "not an amount"},
		{"WP_DURABLE_LIMIT_APIFY_DAILY_USD", "NaN", "not an amount"},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, map[string]string{tt.name: tt.value}, nil)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "secret-value")
		})
	}
	_, err := load(t, map[string]string{"PORT": "x"}, map[string]string{"WP_DURABLE_LOG": "xml", "WP_DURABLE_TOKEN": "short-1"})
	require.ErrorContains(t, err, "--log: ", "as it was given")
	require.ErrorContains(t, err, "--token: ")
	_, err = load(t, map[string]string{"WP_DURABLE_LOG": "xml", "PORT": "x"}, nil)
	require.ErrorContains(t, err, "WP_DURABLE_LOG")
	require.ErrorContains(t, err, "PORT", "all mistakes at once")
}

// Every row of the limits has its own field, and every field its row.
func TestLimits_Complete(t *testing.T) {
	t.Parallel()
	var l Limits
	seen := map[*int64]string{}
	for i := range limits {
		f := limits[i].field(&l)
		require.Empty(t, seen[f], limits[i].name)
		seen[f] = limits[i].name
		require.GreaterOrEqual(t, limits[i].def, limits[i].min, limits[i].name)
		require.True(t, limits[i].max == 0 || limits[i].def <= limits[i].max, limits[i].name)
	}
	v := reflect.ValueOf(&l).Elem()
	require.Len(t, limits, v.NumField()-1)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		if name == "apifyDailyUsd" {
			continue
		}
		row := seen[v.Field(i).Addr().Interface().(*int64)]
		require.Equal(t, strings.ReplaceAll(strings.ToLower(row), "_", ""), strings.ToLower(name), "camelCase of %s", row)
	}
	b, err := json.Marshal(DefaultLimits())
	require.NoError(t, err)
	require.NotContains(t, string(b), "_")
}

// cli is a program with a table's flags.
type cli struct {
	kong.Plugins
}

func TestTable_Flags(t *testing.T) {
	t.Parallel()
	table := NewTable()
	flags := table.Flags()
	var help bytes.Buffer
	parser, err := kong.New(&cli{kong.Plugins{flags.Struct()}}, kong.Writers(&help, &help), kong.Exit(func(int) {}))
	require.NoError(t, err)
	_, err = parser.Parse([]string{"--addr=x:1", "--limit-wait-ms", "7", "--faux", "--openai-base-url=", "--port=1"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"WP_DURABLE_ADDR": "x:1", "WP_DURABLE_LIMIT_WAIT_MS": "7", "WP_DURABLE_FAUX": "1", "OPENAI_BASE_URL": "", "PORT": "1",
	}, flags.Values())

	_, _ = parser.Parse([]string{"--help"})
	text := regexp.MustCompile(`\s+`).ReplaceAllString(help.String(), " ")
	for _, v := range table.Vars() {
		require.Contains(t, text, "--"+v.Flag(), v.Name)
		require.Contains(t, text, "[$"+v.Name+"]")
		require.Equal(t, v.Unused, strings.Contains(text, v.Help+" (not used yet)"), v.Name)
	}
}

// The help of a chat lists what a chat uses; the other flags are taken all the
// same.
func TestTable_ChatFlags(t *testing.T) {
	t.Parallel()
	flags := NewTable().ChatFlags()
	var help bytes.Buffer
	parser, err := kong.New(&cli{kong.Plugins{flags.Struct()}}, kong.Writers(&help, &help), kong.Exit(func(int) {}))
	require.NoError(t, err)
	_, err = parser.Parse([]string{"--hosts=a"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"WP_DURABLE_HOSTS": "a"}, flags.Values())
	_, _ = parser.Parse([]string{"--help"})
	text := help.String()
	for flag, shown := range map[string]bool{
		"--addr": true, "--token": true, "--data-dir": true, "--model=": true, "--limit-output-tokens": true,
		"--port": false, "--hosts": false, "--public-url": false, "--callback-secret": false, "--limit-body-bytes": false, "--limit-fetch-bytes": false,
	} {
		require.Equal(t, shown, strings.Contains(text, flag), flag)
	}
	require.Contains(t, text, "address of the server to talk to")
}

func TestTable_SplitSecrets(t *testing.T) {
	t.Parallel()
	rest, secrets := NewTable().SplitSecrets([]string{
		"serve", "--token=abc", "--addr", "x:1", "--openai-api-key", "def", "--anthropic-api-key=", "--", "--token=message",
	})
	require.Equal(t, []string{"serve", "--addr", "x:1", "--", "--token=message"}, rest)
	require.Equal(t, map[string]string{"WP_DURABLE_TOKEN": "abc", "OPENAI_API_KEY": "def", "ANTHROPIC_API_KEY": ""}, secrets)
	rest, _ = NewTable().SplitSecrets([]string{"serve", "--token"})
	require.Equal(t, []string{"serve", "--token"}, rest)
}

func TestNewTable_Twice(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { NewTable(NewVar(Var{Name: "PORT"}, func(string) error { return nil })) })
	require.Panics(t, func() { NewTable(NewVar(Var{Name: "TOKEN"}, func(string) error { return nil })) })
	var got string
	table := NewTable(NewVar(Var{Name: "APIFY_TOKEN", Secret: true}, func(v string) error { got = v; return nil }))
	require.True(t, table.Secret("APIFY_TOKEN"))
	require.False(t, table.Secret("HOME"))
	_, err := table.Load(Source{Lookup: os.LookupEnv, Flags: map[string]string{"APIFY_TOKEN": "12345678"}})
	require.NoError(t, err)
	require.Equal(t, "12345678", got)
}
