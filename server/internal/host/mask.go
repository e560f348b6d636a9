package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

// maskTools returns the extension with tools whose results hold no secret
// (S1.3).
func maskTools(x durable.Extension, r *secrets.Redactor) durable.Extension {
	tools := make([]*durable.Tool, len(x.Tools))
	for i, t := range x.Tools {
		tools[i] = t.WithFunc(func(next durable.ToolFunc) durable.ToolFunc {
			return func(ctx context.Context, call *durable.ToolCall, args json.RawMessage) (durable.ToolResult, error) {
				res, err := next(ctx, call, args)
				return maskResult(res, r), maskError(err, r)
			}
		})
	}
	x.Tools = tools
	return x
}

func maskResult(res durable.ToolResult, r *secrets.Redactor) durable.ToolResult {
	content := make([]model.Block, len(res.Content))
	for i, b := range res.Content {
		b.Text = r.String(b.Text)
		content[i] = b
	}
	if res.Content != nil {
		res.Content = content
	}
	res.Details = r.JSON(res.Details)
	res.Handoff = r.String(res.Handoff)
	return res
}

// maskError keeps an error without secrets as it is, so that it is still told
// apart by errors.Is.
func maskError(err error, r *secrets.Redactor) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if masked := r.String(text); masked != text {
		return errors.New(masked)
	}
	return err
}

// maskedEnv is an environment whose commands' output holds no secret.
type maskedEnv struct {
	env.Environment
	r *secrets.Redactor
}

// Exec runs a command. What it prints is passed on as it comes, but for the
// end of a piece that may be the beginning of a secret.
func (e maskedEnv) Exec(ctx context.Context, req env.ExecRequest) (env.ExecResult, error) {
	if req.Output == nil {
		return e.Environment.Exec(ctx, req)
	}
	show := req.Output
	streams := map[env.Stream]*secrets.Stream{}
	end := func(name env.Stream) {
		if s := streams[name]; s != nil {
			if rest := s.End(); rest != "" {
				show(name, rest, 0, 0)
			}
		}
	}
	req.Output = func(name env.Stream, text string, skippedBytes, skippedLines int64) {
		if streams[name] == nil {
			streams[name] = e.r.Stream()
		}
		if skippedBytes > 0 {
			end(name)
		}
		if text = streams[name].Next(text); text != "" || skippedBytes > 0 {
			show(name, text, skippedBytes, skippedLines)
		}
	}
	res, err := e.Environment.Exec(ctx, req)
	end(env.Stdout)
	end(env.Stderr)
	return res, err
}
