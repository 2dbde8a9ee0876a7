package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
)

// field is one attribute of a record, its value as text.
type field struct {
	key   string // with the names of its groups in front: "group.key"
	value string
}

// encodeFunc makes the bytes of a record.
type encodeFunc func(level slog.Level, msg string, fields []field) []byte

// handler turns records into bytes and puts them into the queue. It is immutable, so that copies of
// it can be used at once.
type handler struct {
	level slog.Leveler
	out   *atomic.Pointer[output] // shared by all copies: where records go can be changed

	fields []field // of WithAttrs
	group  string  // of WithGroup: what later keys begin with
}

// output is one of the places where records can go.
type output struct {
	encode encodeFunc
	queue  *queue
}

func newOutput(encode encodeFunc, s sink) *output {
	return &output{encode, newQueue(s, func(dropped uint64) []byte {
		return encode(slog.LevelWarn, "log records were lost", []field{{"dropped", strconv.FormatUint(dropped, 10)}})
	})}
}

func newHandler(level slog.Leveler, encode encodeFunc, s sink) (*handler, *queue) {
	h := &handler{level: level, out: &atomic.Pointer[output]{}}
	o := newOutput(encode, s)
	h.out.Store(o)
	return h, o.queue
}

// Enabled follows the level as it is now.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle never waits and never fails.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	fields := slices.Clip(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		fields = appendAttr(fields, h.group, a)
		return true
	})
	if o := h.out.Load(); o != nil {
		o.queue.add(o.encode(r.Level, r.Message, fields))
	}
	return nil
}

// WithAttrs gives a handler whose records all have these attributes.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.fields = slices.Clip(h.fields)
	for _, a := range attrs {
		with.fields = appendAttr(with.fields, h.group, a)
	}
	return &with
}

// WithGroup gives a handler whose later attributes are members of the group.
func (h *handler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.group += name + "."
	}
	return &with
}

// appendAttr resolves an attribute, and a group into its members. An empty attribute says nothing,
// by the rules of slog.Handler.
func appendAttr(fields []field, group string, a slog.Attr) []field {
	v := a.Value.Resolve()
	switch {
	case a.Key == "" && v.Kind() != slog.KindGroup:
		return fields
	case v.Kind() != slog.KindGroup:
		return append(fields, field{group + a.Key, text(v)})
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, member := range v.Group() {
		fields = appendAttr(fields, group, member)
	}
	return fields
}

// text prefers what an error or a Stringer says of itself; a nil in one of them, or a panic, is not
// ours to die of.
func text(v slog.Value) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("(cannot be shown: %v)", p)
		}
	}()
	if v.Kind() == slog.KindAny {
		switch x := v.Any().(type) {
		case error:
			return x.Error()
		case fmt.Stringer:
			return x.String()
		}
	}
	return v.String()
}

// message is what a person reads: the record's text, or else its message, and its detail and its
// error if it has them.
func message(msg string, fields []field) string {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.key == textKey }); i >= 0 {
		msg = fields[i].value
	}
	for _, key := range []string{detailKey, errKey} {
		for _, f := range fields {
			if f.key == key && f.value != "" {
				msg += ": " + f.value
			}
		}
	}
	return msg
}
