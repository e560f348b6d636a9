// Command wp-durable is the reference server of durable agents, and a chat with
// one in the terminal.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/server/internal/providers"
	"github.com/wp-durable/wp-durable/tools/isolation"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

func main() {
	isolation.Main() // a helper process ends here
	os.Exit(run(os.Stdin, os.Stdout, os.Stderr))
}

// program is what every command is given.
type program struct {
	table       *config.Table
	env         *secrets.Environment
	secretNames []string
	stdin       io.Reader
	stdout      io.Writer
	stderr      io.Writer
}

// commandLine is what kong parses.
type commandLine struct {
	Serve   serveCmd   `cmd:"" help:"Run the server."`
	Chat    chatCmd    `cmd:"" help:"Talk in the terminal, to a running server or without one."`
	Openapi openapiCmd `cmd:"" help:"Print the OpenAPI document."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// keysHelp says which variables hold the keys of providers that have no flag.
func (p *program) keysHelp() string {
	var names []string
	for _, name := range providers.KeyVariables("") {
		if !p.table.Has(name) {
			names = append(names, name)
		}
	}
	return "Keys of further model providers are taken from the environment: " + strings.Join(names, ", ") + "."
}

const description = `Durable agents: every input, model turn and tool call is stored before it is shown, and a server that was killed goes on where it stopped.

Every option of serve and chat is an environment variable too, the one in brackets.`

// run returns the exit status: 0, 1 for an error, 2 for a wrong command line.
func run(stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{table: config.NewTable(), stdin: stdin, stdout: stdout, stderr: stderr}
	fail := func(status int, err error) int {
		fmt.Fprintln(stderr, "wp-durable:", err)
		return status
	}
	// Nothing before this: from here on no secret is where others could see it.
	if err := p.capture(); err != nil {
		return fail(1, err)
	}
	cli := &commandLine{Serve: serveCmd{flags: p.table.Flags()}, Chat: chatCmd{flags: p.table.ChatFlags()}}
	cli.Serve.Plugins = kong.Plugins{cli.Serve.flags.Struct()}
	cli.Chat.Plugins = kong.Plugins{cli.Chat.flags.Struct()}
	cli.Serve.help, cli.Chat.help = p.keysHelp(), p.keysHelp()
	exit := -1
	parser, err := kong.New(cli, kong.Name("wp-durable"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(status int) { exit = status }), kong.Bind(p), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return fail(1, err)
	}
	args := p.env.Args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	switch {
	case exit >= 0:
		return exit
	case err != nil:
		return fail(2, err)
	}
	if err := ctx.Run(); err != nil {
		if s, ok := errors.AsType[exitStatus](err); ok {
			return int(s)
		}
		return fail(1, err)
	}
	return 0
}

// exitStatus ends the program without a message.
type exitStatus int

func (exitStatus) Error() string { return "exit" }

// capture takes the secrets out of the environment and the command line.
func (p *program) capture() error {
	keys := providers.KeyVariables(modelsFile(os.Args[1:]))
	known := map[string]bool{}
	for _, name := range keys {
		known[name] = true
	}
	secret := func(name string) bool { return known[name] || p.table.Secret(name) }
	env, err := secrets.Capture(&secrets.CaptureOptions{Secret: secret, Arguments: p.table.SplitSecrets})
	if err != nil {
		return err
	}
	p.env = env
	p.secretNames = keys
	for _, v := range p.table.Vars() {
		if v.Secret && !known[v.Name] {
			p.secretNames = append(p.secretNames, v.Name)
		}
	}
	return nil
}

// modelsFile finds the user's models file before anything is parsed: it names
// the variables that hold keys.
func modelsFile(args []string) string {
	const flag = "--models-file"
	for i, a := range args {
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
		if len(a) > len(flag) && a[:len(flag)+1] == flag+"=" {
			return a[len(flag)+1:]
		}
	}
	return os.Getenv("WP_DURABLE_MODELS_FILE")
}

// given returns the flags that were given, by the name of their variable.
func (p *program) given(flags *config.FlagSet) map[string]string {
	values := flags.Values()
	for _, v := range p.table.Vars() {
		if value, ok := p.env.Flag(v.Name); ok {
			values[v.Name] = value
		}
	}
	return values
}

// config makes the configuration out of flags and environment.
func (p *program) config(flags *config.FlagSet) (*config.Config, error) {
	if err := p.refuseCopies(); err != nil {
		return nil, err
	}
	return p.table.Load(config.Source{Lookup: p.env.Lookup, Names: p.env.Names(), Flags: p.given(flags)})
}

// refuseCopies stops a start that would go on without a setting, because its
// value holds a secret and had to leave the environment.
func (p *program) refuseCopies() error {
	var errs []error
	for _, name := range p.env.Dropped {
		if p.table.Has(name) {
			errs = append(errs, fmt.Errorf("%s: its value holds that of %s, which is a secret: change one of them", name, p.env.Copied[name]))
		}
	}
	return errors.Join(errs...)
}

// version is that of the module, or of the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

type versionCmd struct{}

func (versionCmd) Run(p *program) error {
	_, err := fmt.Fprintln(p.stdout, "wp-durable", version())
	return err
}
