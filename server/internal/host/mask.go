package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

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

// maskedEnv is an environment whose commands' output holds no secret: neither
// what is shown nor the file with the whole of it.
type maskedEnv struct {
	env.Environment
	r *secrets.Redactor
}

// Exec runs a command. What it prints is passed on as it comes, but for the
// end of a piece that may be the beginning of a secret.
func (e maskedEnv) Exec(ctx context.Context, req env.ExecRequest) (env.ExecResult, error) {
	res, err := e.exec(ctx, req)
	if res.SpillPath != "" {
		e.maskSpill(ctx, &res)
	}
	return res, err
}

func (e maskedEnv) exec(ctx context.Context, req env.ExecRequest) (env.ExecResult, error) {
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

// spillTimeout is how long the file of a command's whole output may take to be
// masked. The command may have been aborted: the file must be masked all the
// same.
const spillTimeout = time.Minute

// maskSpill replaces the file with a command's whole output by one without
// secrets, when it holds any. A file that cannot be masked is removed.
func (e maskedEnv) maskSpill(ctx context.Context, res *env.ExecResult) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spillTimeout)
	defer cancel()
	size, err := e.rewriteSpill(ctx, res.SpillPath)
	if err == nil {
		res.SpillBytes = size
		return
	}
	res.SpillError = "it could not be masked: " + e.r.String(err.Error())
	if err := e.Remove(ctx, res.SpillPath); err != nil {
		res.SpillError += "; it could not be removed: " + e.r.String(err.Error())
	}
	res.SpillPath, res.SpillBytes = "", 0
}

// rewriteSpill returns the size of the file afterwards. Most hold no secret and
// are only read.
func (e maskedEnv) rewriteSpill(ctx context.Context, path string) (int64, error) {
	found, size, err := e.readSpill(ctx, path, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err != nil || !found {
		return size, err
	}
	_, size, err = e.readSpill(ctx, path, func(r io.Reader) error {
		return e.Write(ctx, path, r, env.WriteOptions{})
	})
	return size, err
}

// readSpill hands a file to read, masked, and returns whether it holds a secret
// and its masked size.
func (e maskedEnv) readSpill(ctx context.Context, path string, read func(io.Reader) error) (found bool, size int64, err error) {
	f, err := e.Open(ctx, path)
	if err != nil {
		return false, 0, err
	}
	r := &maskedReader{src: f, stream: e.r.Stream()}
	err = errors.Join(read(r), f.Close())
	return r.stream.Found(), r.size, err
}

// maskedReader reads a text without its secrets.
type maskedReader struct {
	src    io.Reader
	stream *secrets.Stream
	ready  string // masked, not read yet
	end    error  // of src
	size   int64  // read so far
	piece  [32 << 10]byte
}

func (r *maskedReader) Read(p []byte) (int, error) {
	for r.ready == "" {
		if r.end != nil {
			return 0, r.end
		}
		var n int
		n, r.end = r.src.Read(r.piece[:])
		r.ready = r.stream.Next(string(r.piece[:n]))
		if r.end != nil {
			r.ready += r.stream.End()
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	r.size += int64(n)
	return n, nil
}
