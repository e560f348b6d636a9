package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

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
	given := p.given(c.flags)
	client, stop, err := p.connect(cfg, given)
	if err != nil {
		return err
	}
	err = chat.Run(context.Background(), &chat.Options{
		Client: client, Conversation: c.Conversation, Message: strings.Join(c.Message, " "), Command: chatCommand(given, cfg),
		In: p.stdin, Out: p.stdout, Err: p.stderr, Terminal: terminal(p.stdin) && terminal(p.stdout), Interrupts: signals,
	})
	err = errors.Join(err, stop())
	if chat.IsLeave(err) {
		return interrupted
	}
	return err
}

// chatCommand returns the command line that comes back to this server.
func chatCommand(given map[string]string, c *config.Config) string {
	command := host.ChatCommand(os.Args[0], c.DataDir)
	if addr := given["WP_DURABLE_ADDR"]; addr != "" {
		command += " --addr " + addr
	}
	return command
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

// connect returns a client of the server that is asked for: with --addr the one
// there, else the one of the data folder. Where neither --addr nor --token says
// that there is one, and there is none, it runs a server inside the program.
// The folder's token goes only to a server that has proved to be the folder's.
func (p *program) connect(c *config.Config, given map[string]string) (client *chat.Client, stop func() error, err error) {
	dataDir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, nil, err
	}
	addr := ""
	find := &chat.Dialer{Find: func() (*chat.Address, error) {
		f, err := host.ReadServerFile(dataDir)
		if err != nil {
			return nil, err
		}
		addr = f.Addr
		return &chat.Address{Addr: f.Addr, Key: f.Key}, nil
	}}
	asked := given["WP_DURABLE_ADDR"]
	switch ours := reached(find); {
	case asked != "" && !(ours && sameAddr(asked, addr)):
		return p.connectTo(c)
	case ours:
		token := c.Token
		if token == "" {
			if token, err = host.ReadToken(dataDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, err
			}
		}
		fmt.Fprintf(p.stderr, "connected to http://%s\n", addr)
		return &chat.Client{Base: "http://localhost", Token: token, HTTP: &http.Client{Transport: find.Transport()}}, keep, nil
	case given["WP_DURABLE_TOKEN"] != "":
		return nil, nil, fmt.Errorf("--token: no server of the data folder %s runs; say with --addr where another one is", dataDir)
	}
	return p.embed(c)
}

// keep is the end of a chat with a server that goes on.
func keep() error { return nil }

// connectTo returns a client of the server at the address of c, which is not
// known to be the data folder's: it gets only a token that was given.
func (p *program) connectTo(c *config.Config) (*chat.Client, func() error, error) {
	const patience = 10 * time.Second
	d := net.Dialer{Timeout: patience}
	conn, err := d.DialContext(context.Background(), "tcp", c.Addr)
	if err != nil {
		return nil, nil, fmt.Errorf("--addr: no server at %s: %w", c.Addr, err)
	}
	_ = conn.Close() // somebody listens, that is all
	if c.Token == "" {
		return nil, nil, fmt.Errorf("--addr: the server at %s is not the one of the data folder; give its token with --token or WP_DURABLE_TOKEN", c.Addr)
	}
	fmt.Fprintf(p.stderr, "connected to http://%s\n", c.Addr)
	return &chat.Client{
		Base: "http://" + c.Addr, Token: c.Token,
		HTTP: &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableCompression: true}},
	}, keep, nil
}

// sameAddr reports whether two addresses are spelled alike, apart from names of
// this machine.
func sameAddr(a, b string) bool {
	local := func(addr string) string {
		name, port, _ := net.SplitHostPort(addr)
		if name == "localhost" || name == "" || name == "0.0.0.0" {
			name = "127.0.0.1"
		}
		return net.JoinHostPort(name, port)
	}
	return local(a) == local(b)
}

// embed runs a server inside the program.
func (p *program) embed(c *config.Config) (client *chat.Client, stop func() error, err error) {
	pipe := chat.NewPipe()
	h, _, err := p.host(context.Background(), c, slog.LevelError, func(o *host.Options) {
		o.Listener, o.Private = pipe, true
	})
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintln(p.stderr, "no server here, running the engine in this program")
	for _, note := range h.Notes() {
		fmt.Fprintln(p.stderr, note)
	}
	client = &chat.Client{
		Base: "http://localhost", Token: h.Token(),
		HTTP: &http.Client{Transport: &http.Transport{DialContext: pipe.Dial, DisableCompression: true}},
	}
	return client, func() error { return shutdown(h.Close, c.Shutdown) }, nil
}
