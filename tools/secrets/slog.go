package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Handler returns a log handler that masks messages, keys and values before h
// sees them. Values of other types than numbers, booleans and times are masked
// as the text they are shown as.
func (r *Redactor) Handler(h slog.Handler) slog.Handler { return &handler{r: r, next: h} }

type handler struct {
	r    *Redactor
	next slog.Handler
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	masked := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, masked)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = h.attr(a)
	}
	return &handler{r: h.r, next: h.next.WithAttrs(masked)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{r: h.r, next: h.next.WithGroup(h.r.String(name))}
}

func (h *handler) attr(a slog.Attr) slog.Attr {
	return slog.Attr{Key: h.r.String(a.Key), Value: h.value(a.Value)}
}

func (h *handler) value(v slog.Value) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(h.r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		masked := make([]slog.Attr, len(group))
		for i, a := range group {
			masked[i] = h.attr(a)
		}
		return slog.GroupValue(masked...)
	case slog.KindAny:
		return h.any(v)
	default:
		return v
	}
}

// any keeps a value whose text holds no secret as it is, so that the handler
// behind may format it in its own way.
func (h *handler) any(v slog.Value) slog.Value {
	var text string
	switch x := v.Any().(type) {
	case nil:
		return v
	case error:
		text = x.Error()
	case []byte:
		text = string(x)
	default:
		text = fmt.Sprintf("%+v", x)
		// A JSON handler shows what is behind pointers too.
		if b, err := json.Marshal(x); err == nil {
			if masked := h.r.JSON(b); !bytes.Equal(masked, b) {
				return slog.StringValue(string(masked))
			}
		}
	}
	if masked := h.r.String(text); masked != text {
		return slog.StringValue(masked)
	}
	return v
}
