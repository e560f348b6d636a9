package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
	"github.com/wp-durable/wp-durable/server"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/server/internal/providers"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Options configure a [Host]. Config is required; zero fields have the default
// they name.
type Options struct {
	Config  *config.Config
	Version string
	// Program is how the program was called. Default: "wp-durable".
	Program string
	// Lookup finds the keys of model providers. Default: none are found.
	Lookup func(name string) (string, bool)
	// SecretNames are the variables that hold secrets.
	SecretNames []string
	// Listener is where requests come from. Default: one on Config.Addr.
	Listener net.Listener
	// Private: the server is not announced in server.json.
	Private bool
	// Redactor masks secrets; the host adds those it learns. Default: a new
	// one.
	Redactor *secrets.Redactor
	// Logger receives what goes on. Default: slog.Default.
	Logger *slog.Logger
	// Kill ends the process at once, for tests of crashes. Default: SIGKILL.
	Kill func()
}

// Host is a running server.
type Host struct {
	opts   Options
	config *config.Config
	log    *slog.Logger
	redact *secrets.Redactor

	dataDir  string
	database string
	token    string
	newToken bool // the token was made at this start
	key      []byte

	store    *watchedStore
	listener net.Listener
	models   *providers.Models
	work     workplace
	engine   *durable.Engine
	server   *server.Server
	http     *http.Server
	stopped  chan struct{} // closed when no more requests are answered
	serveErr error         // why, set before stopped is closed
}

// Start brings a server up. When it returns, requests are answered. An error
// leaves nothing behind.
func Start(ctx context.Context, opts *Options) (_ *Host, err error) {
	h := &Host{opts: *opts, config: opts.Config, log: opts.Logger, redact: opts.Redactor, key: newServerKey(), stopped: make(chan struct{})}
	if h.log == nil {
		h.log = slog.Default()
	}
	if h.redact == nil {
		h.redact = secrets.NewRedactor()
	}
	if h.opts.Lookup == nil {
		h.opts.Lookup = func(string) (string, bool) { return "", false }
	}
	if h.opts.Kill == nil {
		h.opts.Kill = killSelf
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close(context.WithoutCancel(ctx)))
		}
	}()
	for _, step := range []func(context.Context) error{
		h.openData, h.listen, h.openModels, h.openWorkplace, h.openEngine, h.openServer,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// openData opens the data folder and the store in it, which only one server
// can have.
func (h *Host) openData(ctx context.Context) (err error) {
	if h.dataDir, err = makeDataDir(h.config.DataDir); err != nil {
		return err
	}
	if h.database, err = filepath.Abs(cmp.Or(h.config.DatabaseURL, filepath.Join(h.dataDir, databaseName))); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	store, err := sqlite.Open(ctx, h.database, nil)
	if err != nil {
		return explain(err)
	}
	h.store = watch(store, h.config.Test.Crash, h.opts.Kill)
	if h.token = h.config.Token; h.token == "" {
		if h.token, h.newToken, err = keepToken(h.dataDir); err != nil {
			return err
		}
	}
	c := h.config
	return errors.Join(h.redact.Add("WP_DURABLE_TOKEN", h.token), h.redact.Add("WP_DURABLE_CALLBACK_SECRET", c.CallbackSecret),
		h.redact.Add("WP_BRIDGE_TOKEN", c.BridgeToken))
}

// explain adds what to do to errors that stop a newcomer.
func explain(err error) error {
	switch {
	case errors.Is(err, durable.ErrStoreInUse):
		return fmt.Errorf("%w; stop it, or choose another data folder with WP_DURABLE_DATA_DIR", err)
	case errors.Is(err, durable.ErrStoreNewer):
		return fmt.Errorf("%w; the file is unchanged: use a newer wp-durable, or another database", err)
	case errors.Is(err, durable.ErrStoreCorrupt):
		return fmt.Errorf("%w; the file is unchanged: restore it from a backup, or choose another with WP_DURABLE_DATABASE_URL", err)
	}
	return err
}

func (h *Host) listen(ctx context.Context) error {
	if h.listener = h.opts.Listener; h.listener != nil {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", h.config.Addr)
	if err != nil {
		return fmt.Errorf("%w; choose another address with WP_DURABLE_ADDR", err)
	}
	h.listener = l
	return nil
}

func (h *Host) openModels(context.Context) (err error) {
	h.models, err = providers.New(h.config, h.opts.Lookup, h.redact)
	return err
}

func (h *Host) agent() durable.Agent {
	return durable.Agent{Model: &h.models.Default, OutputTokens: int(h.config.Limits.OutputTokens)}
}

func (h *Host) openEngine(ctx context.Context) (err error) {
	o := &durable.Options{
		Models: h.models.Set, Registry: durable.NewRegistry(h.extension()), Agent: h.agent(), Logger: h.log,
		ConcurrentRuns: int(h.config.Limits.ConcurrentRuns),
		Env: func(ctx context.Context, c *durable.Conversation) (env.Environment, error) {
			e, err := h.work.env(ctx, c)
			if err != nil {
				return nil, err
			}
			return maskedEnv{e, h.redact}, nil
		},
	}
	if t := h.config.Test; t.RetryBase > 0 {
		o.Retry.Base = t.RetryBase
	} else if t.Faux {
		o.Retry.Max = -1
	}
	h.engine, err = durable.Open(ctx, h.store, o)
	return err
}

func (h *Host) openServer(context.Context) (err error) {
	c := h.config
	h.server, err = server.New(h.engine, &server.Options{
		Token: h.token, Version: h.opts.Version, Models: h.models.Set, Agent: h.agent(), Limits: c.Limits,
		Addr: h.listener.Addr().String(), Hosts: c.Hosts, Origins: c.Origins, PublicHost: c.PublicHost(),
		Isolation: h.work.status, Environment: h.environment, Faux: h.models.Faux, Key: h.key, Redactor: h.redact, Logger: h.log,
	})
	if err != nil {
		return err
	}
	h.http = &http.Server{
		Handler: h.server, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like other targets that are no path
	}
	go func() {
		h.serveErr = ignore(h.http.Serve(h.listener), http.ErrServerClosed)
		close(h.stopped)
	}()
	if h.opts.Private {
		return nil
	}
	return writeServerFile(h.dataDir, ServerFile{Addr: h.Addr(), PID: os.Getpid(), Key: h.key})
}

// Addr returns where a client of this machine reaches the server.
func (h *Host) Addr() string {
	addr := h.listener.Addr().String()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// everywhere reports whether the server listens on all addresses, and its port.
func (h *Host) everywhere() (port string, all bool) {
	host, port, err := net.SplitHostPort(h.listener.Addr().String())
	ip := net.ParseIP(host)
	return port, err == nil && ip != nil && ip.IsUnspecified()
}

// Failed returns a channel that is closed when the store has failed: the
// process must end, so that the next one reads from disk (E4.3).
func (h *Host) Failed() <-chan struct{} { return h.store.failed }

// Stopped returns a channel that is closed when the server answers no more
// requests, by Close or because its listener failed.
func (h *Host) Stopped() <-chan struct{} { return h.stopped }

// Token returns the server's token.
func (h *Host) Token() string { return h.token }

// Welcome returns what a person who has just started the server needs to know:
// where it is, what it can do, and a command to try it.
func (h *Host) Welcome() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s"+format+"\n", append([]any{name}, args...)...)
	}
	if port, all := h.everywhere(); all {
		line("listening", " on all addresses, port %s (plain HTTP)", port)
	} else {
		line("listening", " http://%s", h.Addr())
	}
	line("data", " %s", h.dataDir)
	missing := h.models.Missing()
	switch {
	case h.models.Demo:
		line("model", " %s, a scripted demo that works offline; set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one", h.models.Default)
	case missing != nil:
		line("model", " %s: no credential for %s: set %s", h.models.Default, missing.Provider, missing.Variable)
	default:
		line("model", " %s", h.models.Default)
	}
	line("tools", " %s", h.toolsReason())
	show := "$(cat " + quote(filepath.Join(h.dataDir, tokenName)) + ")"
	switch {
	case h.newToken:
		line("token", " %s (kept in %s)", h.token, filepath.Join(h.dataDir, tokenName))
		show = h.token
	case h.config.Token != "":
		line("token", " from WP_DURABLE_TOKEN")
		show = "$WP_DURABLE_TOKEN"
	default:
		line("token", " in %s", filepath.Join(h.dataDir, tokenName))
	}
	fmt.Fprintf(&b, "\nTry it:\n\n  curl http://%s/v1/submit -H \"authorization: Bearer %s\" -H 'content-type: application/json' -d '{\"requestId\":\"hello-1\",\"content\":\"Hello\"}'\n\nor talk to it in another terminal:\n\n  %s\n", h.Addr(), show, ChatCommand(h.opts.Program, h.config.DataDir))
	return b.String()
}

// ChatCommand returns the command line that talks to the server of a data
// folder: the program as it was called, and the folder when it is not the usual
// one.
func ChatCommand(program, dataDir string) string {
	command := quote(cmp.Or(program, "wp-durable")) + " chat"
	if dataDir != config.Default().DataDir {
		command += " --data-dir " + quote(dataDir)
	}
	return command
}

// Notes returns what a person who talks to this host has to know: why there are
// no tools, and no answers.
func (h *Host) Notes() []string {
	var notes []string
	if !h.work.available() {
		notes = append(notes, "tools "+h.toolsReason())
	}
	if m := h.models.Missing(); m != nil {
		notes = append(notes, fmt.Sprintf("no credential for %s: set %s", m.Provider, m.Variable))
	}
	return notes
}

// quote makes a path one word of a shell command inside double quotes.
func quote(path string) string {
	if strings.ContainsAny(path, " '\"\\$`") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// Close brings the server down: streams say bye, long polls answer, requests
// under way end, and meanwhile tool calls are interrupted with what they printed
// kept. It takes as long as ctx allows; what is not done by then is cut off, and
// nothing is lost either way (S1.4). It may be called on a host that is not
// wholly up.
func (h *Host) Close(ctx context.Context) error {
	var errs []error
	if h.server != nil {
		h.server.Shutdown()
	}
	// The rest of the time is for what comes behind.
	waiting, cancel := withShare(ctx, 3, 4)
	defer cancel()
	engine := make(chan error, 1)
	if h.engine != nil {
		go func() { engine <- h.engine.Close(waiting) }()
	} else {
		engine <- nil
	}
	if h.http != nil {
		if !h.opts.Private {
			errs = append(errs, ignore(os.Remove(filepath.Join(h.dataDir, serverName)), os.ErrNotExist))
		}
		if err := h.http.Shutdown(waiting); err != nil {
			h.log.Warn("requests were cut off", "error", err)
			errs = append(errs, h.http.Close())
		}
		<-h.stopped
		errs = append(errs, h.serveErr)
	} else if h.listener != nil {
		errs = append(errs, h.listener.Close())
	}
	if err := <-engine; err != nil {
		h.log.Warn("work was cut off", "error", err)
	}
	errs = append(errs, h.work.close())
	if h.store != nil {
		errs = append(errs, h.store.Close())
	}
	return errors.Join(errs...)
}

// withShare returns a context that has parts of the time that ctx has left.
func withShare(ctx context.Context, parts, of time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*parts/of)
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
