package main

import (
	"bytes"
	"os"

	"github.com/wp-durable/wp-durable/server"
)

type openapiCmd struct {
	Output string `short:"o" help:"File to write instead of standard output. One that is the document already is left alone." placeholder:"FILE"`
	Format string `enum:"yaml,json" default:"yaml" help:"yaml or json."`
	Old    bool   `name:"3.0" help:"OpenAPI 3.0, for generators that need it, instead of 3.1."`
}

func (c *openapiCmd) Run(p *program) error {
	doc, err := server.OpenAPI()
	if err != nil {
		return err
	}
	text := map[string]map[bool][]byte{
		"yaml": {false: doc.YAML, true: doc.YAML30},
		"json": {false: doc.JSON, true: doc.JSON30},
	}[c.Format][c.Old]
	if c.Output == "" {
		_, err := p.stdout.Write(text)
		return err
	}
	if before, err := os.ReadFile(c.Output); err == nil && bytes.Equal(before, text) {
		return nil
	}
	return os.WriteFile(c.Output, text, 0o644)
}
