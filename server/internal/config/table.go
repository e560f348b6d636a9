package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Var is one configuration variable: a row of the table.
type Var struct {
	Name    string // of the environment variable
	Group   string // heading in --help
	Help    string // one sentence
	Default string // as shown; the value itself is set by the table's owner
	// Secret: the value is masked everywhere and leaves the environment.
	Secret bool
	// Switch: the flag takes no value.
	Switch bool
	// Unused: it is of something that is not built yet. The value is checked.
	Unused bool
	// ServerOnly: a chat does not use it.
	ServerOnly bool
	// Chat is the sentence in the help of a chat, where it means something
	// else there. Default: Help.
	Chat string

	set func(c *Config, value string) error
}

// NewVar returns a row for a package's own variable. set checks the value and
// keeps it; its error must not hold the value of a secret.
func NewVar(v Var, set func(value string) error) Var {
	v.set = func(_ *Config, value string) error { return set(value) }
	return v
}

// Flag returns the name of the row's command-line flag.
func (v *Var) Flag() string {
	name := strings.TrimPrefix(v.Name, "WP_DURABLE_")
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// The headings of --help.
const (
	GroupServer    = "Server"
	GroupModels    = "Models"
	GroupIsolation = "Isolation"
	GroupLimits    = "Limits"
	GroupTest      = "For tests only"
)

// Config is the configuration of a server. Default says what it is where
// nothing is set.
type Config struct {
	Token       string   // empty: generated once
	Addr        string   // host:port to listen on
	Hosts       []string // further names of the server, lower case
	Origins     []string // further origins that may call it, as browsers send them
	PublicURL   string   // where clients reach it, empty for not known
	DataDir     string
	DatabaseURL string // path of the SQLite file; empty for the one in DataDir
	LogFormat   string // "text" or "json"
	Shutdown    time.Duration
	AgentUIDs   string
	BridgeToken string
	// CallbackSecret signs callbacks: "whsec_" and base64.
	CallbackSecret string

	Model      string // "provider/model", empty for none
	ModelsFile string
	Providers  Providers

	Limits Limits
	Test   Test
}

// Providers is what the built-in model providers are told.
type Providers struct {
	AnthropicAPIKey, AnthropicAuthToken, AnthropicOAuthToken, AnthropicBaseURL string
	OpenAIAPIKey, OpenAIBaseURL                                                string
}

// Test is what only tests set.
type Test struct {
	Faux           bool
	FauxScript     string
	Unisolated     bool
	CallbackDelays []time.Duration
	AllowAddrs     []string
	RetryBase      time.Duration // 0: no retries in faux mode
	Crash          Crash
}

// Crash is a store commit at which the process kills itself; 0 for none.
type Crash struct {
	At     int64
	Before bool // before the commit is stored, else right after
}

// DefaultAddr is where a server listens that is told nothing.
const DefaultAddr = "127.0.0.1:8787"

// Default returns the configuration of a server that is told nothing.
func Default() *Config {
	return &Config{
		Addr: DefaultAddr, DataDir: "wp-durable-data", LogFormat: "text",
		Shutdown: 10 * time.Second, AgentUIDs: "61337", Limits: DefaultLimits(),
	}
}

// Vars returns the server's own rows of the table.
func Vars() []Var {
	return append([]Var{
		{Name: "WP_DURABLE_ADDR", Group: GroupServer, Default: DefaultAddr,
			Help: "address to listen on", set: setAddr,
			Chat: "address of the server to talk to (default: that of the server in the data folder, if one runs)"},
		{Name: "PORT", Group: GroupServer, ServerOnly: true,
			Help: "port to listen on, at all addresses; WP_DURABLE_ADDR wins", set: setPort},
		{Name: "WP_DURABLE_TOKEN", Group: GroupServer, Secret: true, Default: "generated once, in the data folder",
			Help: "bearer token of the HTTP API", set: str(func(c *Config) *string { return &c.Token }),
			Chat: "bearer token of the server to talk to (default: the one in the data folder)"},
		{Name: "WP_DURABLE_DATA_DIR", Group: GroupServer, Default: "./wp-durable-data",
			Help: "folder of the database, the token and the work folders", set: str(func(c *Config) *string { return &c.DataDir })},
		{Name: "WP_DURABLE_DATABASE_URL", Group: GroupServer, Secret: true, Default: "wp-durable.db in the data folder",
			Help: "path of the SQLite database", set: setDatabase},
		{Name: "WP_DURABLE_HOSTS", Group: GroupServer, ServerOnly: true,
			Help: "further host names of the server, separated by commas", set: setHosts},
		{Name: "WP_DURABLE_ORIGINS", Group: GroupServer, ServerOnly: true,
			Help: "origins of web pages that may call the server, separated by commas", set: setOrigins},
		{Name: "WP_DURABLE_PUBLIC_URL", Group: GroupServer, ServerOnly: true,
			Help: "URL at which clients reach the server", set: setPublicURL},
		{Name: "WP_DURABLE_LOG", Group: GroupServer, Default: "text",
			Help: "log format, text or json", set: oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
		{Name: "WP_DURABLE_SHUTDOWN_MS", Group: GroupServer, Default: "10000",
			Help: "time a shutdown has", set: millis(func(c *Config) *time.Duration { return &c.Shutdown }, 1)},
		{Name: "WP_DURABLE_CALLBACK_SECRET", Group: GroupServer, Secret: true, Unused: true,
			Help: "secret that signs callbacks, whsec_ and base64", set: setCallbackSecret},
		{Name: "WP_BRIDGE_TOKEN", Group: GroupServer, Secret: true, Unused: true,
			Help: "token by which bridges connect", set: str(func(c *Config) *string { return &c.BridgeToken })},

		{Name: "WP_DURABLE_MODEL", Group: GroupModels, Default: "the first that is available",
			Help: "model of conversations that name none, provider/model", set: setModel},
		{Name: "WP_DURABLE_MODELS_FILE", Group: GroupModels,
			Help: "JSON file with further providers and models", set: str(func(c *Config) *string { return &c.ModelsFile })},
		{Name: "ANTHROPIC_API_KEY", Group: GroupModels, Secret: true,
			Help: "key for Anthropic's models", set: str(func(c *Config) *string { return &c.Providers.AnthropicAPIKey })},
		{Name: "ANTHROPIC_AUTH_TOKEN", Group: GroupModels, Secret: true,
			Help: "bearer token for Anthropic's models, instead of a key", set: str(func(c *Config) *string { return &c.Providers.AnthropicAuthToken })},
		{Name: "ANTHROPIC_OAUTH_TOKEN", Group: GroupModels, Secret: true,
			Help: "OAuth token for Anthropic's models, instead of a key", set: str(func(c *Config) *string { return &c.Providers.AnthropicOAuthToken })},
		{Name: "ANTHROPIC_BASE_URL", Group: GroupModels, Default: "https://api.anthropic.com",
			Help: "server of the Anthropic API", set: setURL(func(c *Config) *string { return &c.Providers.AnthropicBaseURL })},
		{Name: "OPENAI_API_KEY", Group: GroupModels, Secret: true,
			Help: "key for OpenAI's models", set: str(func(c *Config) *string { return &c.Providers.OpenAIAPIKey })},
		{Name: "OPENAI_BASE_URL", Group: GroupModels, Default: "https://api.openai.com/v1",
			Help: "server of the OpenAI API, with its /v1", set: setURL(func(c *Config) *string { return &c.Providers.OpenAIBaseURL })},

		{Name: "WP_DURABLE_AGENT_UIDS", Group: GroupIsolation, Default: "61337",
			Help: "user id of commands when the server runs as root, or first-last for one of their own for each tree", set: setUIDs},

		{Name: "WP_DURABLE_FAUX", Group: GroupTest, Switch: true,
			Help: "add the scripted provider faux and make it the default", set: flag(func(c *Config) *bool { return &c.Test.Faux })},
		{Name: "WP_DURABLE_FAUX_SCRIPT", Group: GroupTest,
			Help: "file with what the scripted provider answers", set: str(func(c *Config) *string { return &c.Test.FauxScript })},
		{Name: "WP_DURABLE_TEST_UNISOLATED", Group: GroupTest, Switch: true,
			Help: "run commands without isolation; needs WP_DURABLE_FAUX", set: flag(func(c *Config) *bool { return &c.Test.Unisolated })},
		{Name: "WP_DURABLE_TEST_CALLBACK_DELAYS_MS", Group: GroupTest, Unused: true,
			Help: "delays between the attempts of a callback, separated by commas", set: setCallbackDelays},
		{Name: "WP_DURABLE_TEST_ALLOW_ADDRS", Group: GroupTest, Unused: true,
			Help: "local addresses that callbacks and downloads may reach, separated by commas", set: setAllowAddrs},
		{Name: "WP_DURABLE_TEST_RETRY_BASE_MS", Group: GroupTest,
			Help: "first delay before a model request is repeated", set: millis(func(c *Config) *time.Duration { return &c.Test.RetryBase }, 1)},
		{Name: "WP_DURABLE_TEST_CRASH_AT", Group: GroupTest,
			Help: "kill the process right after this store commit, with before: in front right before it", set: setCrash},
	}, limitVars()...)
}

func str(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, value string) error {
		for _, a := range allowed {
			if value == a {
				*field(c) = value
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

func flag(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		switch strings.ToLower(value) {
		case "1", "true", "yes", "on":
			*field(c) = true
		case "0", "false", "no", "off":
			*field(c) = false
		default:
			return fmt.Errorf("%q is neither 1 nor 0", value)
		}
		return nil
	}
}

func millis(field func(*Config) *time.Duration, least int64) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := parseMillis(value, least)
		if err == nil {
			*field(c) = n
		}
		return err
	}
}

func parseMillis(value string, least int64) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n < least || n > int64(24*time.Hour/time.Millisecond) {
		return 0, fmt.Errorf("%q is not a number of milliseconds from %d on", value, least)
	}
	return time.Duration(n) * time.Millisecond, nil
}

func setAddr(c *Config, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("%q is not host:port", value)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: %q is no port", value, port)
	}
	c.Addr = value
	return nil
}

func setPort(c *Config, value string) error {
	if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is no port", value)
	}
	c.Addr = "0.0.0.0:" + value
	return nil
}

// setDatabase takes a path, sqlite:path or sqlite://path.
func setDatabase(c *Config, value string) error {
	scheme, rest, found := strings.Cut(value, ":")
	switch {
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return errors.New("PostgreSQL is not supported yet; give the path of an SQLite file")
	case found && scheme == "sqlite":
		value = strings.TrimPrefix(rest, "//")
	case found && scheme == "file":
		return errors.New("a file: URL is not understood; give the path of an SQLite file")
	case found && strings.HasPrefix(rest, "//"):
		return fmt.Errorf("databases of the kind %q are not known; give the path of an SQLite file", scheme)
	}
	if value == "" || strings.ContainsAny(value, "?#\x00") {
		return errors.New("not the path of an SQLite file")
	}
	c.DatabaseURL = value
	return nil
}

func list(value string) []string {
	var out []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func setHosts(c *Config, value string) error {
	c.Hosts = nil
	for _, h := range list(value) {
		if strings.ContainsAny(h, "/@*?# ") {
			return fmt.Errorf("%q is not a host name", h)
		}
		c.Hosts = append(c.Hosts, strings.ToLower(h))
	}
	return nil
}

func setOrigins(c *Config, value string) error {
	c.Origins = nil
	for _, o := range list(value) {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.TrimSuffix(o, "/") != u.Scheme+"://"+u.Host {
			return fmt.Errorf("%q is not an origin such as https://app.example.com", o)
		}
		c.Origins = append(c.Origins, strings.ToLower(u.Scheme+"://"+u.Host))
	}
	return nil
}

func setPublicURL(c *Config, value string) error {
	if err := checkURL(value); err != nil {
		return err
	}
	c.PublicURL = strings.TrimRight(value, "/")
	return nil
}

func setURL(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		if err := checkURL(value); err != nil {
			return err
		}
		*field(c) = value
		return nil
	}
}

// checkURL does not repeat the value: it may hold a password.
func checkURL(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return errors.New("not an http or https URL")
	case u.User != nil:
		return errors.New("the URL must not hold a user or password")
	}
	return nil
}

func setModel(c *Config, value string) error {
	provider, id, ok := strings.Cut(value, "/")
	if !ok || provider == "" || id == "" {
		return fmt.Errorf("%q is not provider/model", value)
	}
	c.Model = value
	return nil
}

func setCallbackSecret(c *Config, value string) error {
	encoded, ok := strings.CutPrefix(value, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 16 {
		return errors.New("not whsec_ and at least 16 bytes in base64")
	}
	c.CallbackSecret = value
	return nil
}

// The user ids that commands may run as are those of no person and no system
// service.
const (
	minUID = 1000
	maxUID = 1<<31 - 2
	nobody = 65534
)

// setUIDs takes what the isolation takes.
func setUIDs(c *Config, value string) error {
	first, last, isRange := strings.Cut(value, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.Atoi(strings.TrimSpace(first))
	b, errB := strconv.Atoi(strings.TrimSpace(last))
	switch {
	case errA != nil || errB != nil:
		return fmt.Errorf("%q is neither a user id nor a range first-last", value)
	case a < minUID || b > maxUID:
		return fmt.Errorf("%q is not between %d and %d", value, minUID, maxUID)
	case b < a:
		return fmt.Errorf("%q ends before it begins", value)
	case a <= nobody && nobody <= b:
		return fmt.Errorf("%q contains %d, which is nobody", value, nobody)
	}
	c.AgentUIDs = value
	return nil
}

func setCallbackDelays(c *Config, value string) error {
	c.Test.CallbackDelays = nil
	for _, item := range list(value) {
		d, err := parseMillis(item, 0)
		if err != nil {
			return err
		}
		c.Test.CallbackDelays = append(c.Test.CallbackDelays, d)
	}
	return nil
}

func setAllowAddrs(c *Config, value string) error {
	c.Test.AllowAddrs = nil
	for _, a := range list(value) {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("%q is not host:port", a)
		}
		c.Test.AllowAddrs = append(c.Test.AllowAddrs, a)
	}
	return nil
}

func setCrash(c *Config, value string) error {
	number, before := strings.CutPrefix(value, "before:")
	if rest, ok := strings.CutPrefix(number, "-"); ok && !before {
		number, before = rest, true
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not the number of a commit", value)
	}
	c.Test.Crash = Crash{At: n, Before: before}
	return nil
}
