package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/server/internal/host"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

type serveCmd struct {
	kong.Plugins
	flags *config.FlagSet
	help  string
}

// Help is shown by --help below what the command does.
func (s *serveCmd) Help() string { return s.help }

// logger writes to w, without secrets.
func logger(c *config.Config, level slog.Level, w io.Writer, redact *secrets.Redactor) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if c.LogFormat == "json" {
		h = slog.NewJSONHandler(w, o)
	}
	return slog.New(redact.Handler(h))
}

// host starts a server of this configuration.
func (p *program) host(ctx context.Context, c *config.Config, level slog.Level, change func(*host.Options)) (*host.Host, *slog.Logger, error) {
	redact := secrets.NewRedactor()
	log := logger(c, level, p.stderr, redact)
	slog.SetDefault(log)
	for _, name := range p.env.Dropped {
		log.Warn("variable held a copy of a secret and was removed from the environment", "name", name)
	}
	o := &host.Options{
		Config: c, Version: version(), Program: os.Args[0], Lookup: p.env.Lookup, SecretNames: p.secretNames, Redactor: redact, Logger: log,
	}
	if change != nil {
		change(o)
	}
	h, err := host.Start(ctx, o)
	if err != nil {
		err = errors.New(redact.String(err.Error()))
	}
	return h, log, err
}

// Run serves until a signal comes. A second signal ends the process at once.
func (s *serveCmd) Run(p *program) error {
	c, err := p.config(s.flags)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	starting, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan os.Signal, 1)
	go func() {
		sig := <-signals
		stopped <- sig
		cancel() // a start under way ends
		<-signals
		os.Exit(1)
	}()

	h, log, err := p.host(starting, c, slog.LevelInfo, nil)
	if err != nil {
		if starting.Err() != nil {
			return nil // told to stop before it was up: nothing was lost
		}
		return err
	}
	fmt.Fprintf(p.stdout, "wp-durable %s\n%s", version(), h.Welcome())
	select {
	case sig := <-stopped:
		log.Info("stopping", "signal", sig.String())
	case <-h.Failed():
		// What is on the disk is unknown to this process. The next one reads it.
		return errors.New("the store failed: start again to recover from what is on the disk")
	case <-h.Stopped():
		err = errors.New("the listener failed")
	}
	return errors.Join(err, shutdown(h.Close, c.Shutdown))
}

// shutdown closes the host in the time it has, and not a moment longer. What
// does not end by then is left behind: it goes on at the next start.
func shutdown(stop func(context.Context) error, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- stop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}
