package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"github.com/wp-durable/wp-durable/server/internal/chat"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/server/internal/host"
)

type chatCmd struct {
	Conversation int64    `short:"c" help:"Conversation to resume." placeholder:"ID"`
	Message      []string `arg:"" optional:"" help:"The only message; without one, lines of standard input are."`
	kong.Plugins
	flags *config.FlagSet
	help  string
}

// Help is shown by --help below what the command does.
func (c *chatCmd) Help() string { return c.help }

// interrupted is the exit status of a program that Ctrl-C ended.
const interrupted exitStatus = 130

// Run talks to the server of the data folder, or to one inside the program.
func (c *chatCmd) Run(p *program) error {
	cfg, err := p.config(c.flags)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt)
	client, stop, err := p.connect(cfg)
	if err != nil {
		return err
	}
	err = chat.Run(context.Background(), &chat.Options{
		Client: client, Conversation: c.Conversation, Message: strings.Join(c.Message, " "),
		In: p.stdin, Out: p.stdout, Err: p.stderr, Terminal: terminal(p.stdin) && terminal(p.stdout), Interrupts: signals,
	})
	err = errors.Join(err, stop())
	if chat.IsLeave(err) {
		return interrupted
	}
	return err
}

func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// reached reports whether a server of the data folder can be talked to.
func reached(d *chat.Dialer) bool {
	conn, err := d.Dial(context.Background(), "", "")
	if err != nil {
		return false
	}
	_ = conn.Close() // it has said what there was to say
	return true
}

// connect finds a running server by server.json, or starts one. The token goes
// only to a server that has proved to be the one that wrote that file.
func (p *program) connect(c *config.Config) (client *chat.Client, stop func() error, err error) {
	dataDir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, nil, err
	}
	find := &chat.Dialer{Find: func() (*chat.Address, error) {
		f, err := host.ReadServerFile(dataDir)
		if err != nil {
			return nil, err
		}
		return &chat.Address{Addr: f.Addr, Key: f.Key}, nil
	}}
	if reached(find) {
		token := c.Token
		if token == "" {
			if token, err = host.ReadToken(dataDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, err
			}
		}
		return &chat.Client{Base: "http://localhost", Token: token, HTTP: &http.Client{Transport: find.Transport()}},
			func() error { return nil }, nil
	}
	pipe := chat.NewPipe()
	h, _, err := p.host(context.Background(), c, slog.LevelError, func(o *host.Options) {
		o.Listener, o.Private = pipe, true
	})
	if err != nil {
		return nil, nil, err
	}
	client = &chat.Client{
		Base: "http://localhost", Token: h.Token(),
		HTTP: &http.Client{Transport: &http.Transport{DialContext: pipe.Dial, DisableCompression: true}},
	}
	return client, func() error { return shutdown(h.Close, c.Shutdown) }, nil
}
