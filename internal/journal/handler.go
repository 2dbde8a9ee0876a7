package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
)

// field is an attribute of a record, with its value as text.
type field struct {
	key   string // prefixed with the names of its groups: "group.key"
	value string
}

// encodeFunc encodes a record.
type encodeFunc func(level slog.Level, msg string, fields []field) []byte

// handler encodes records and puts them into the queue. It is immutable, so that copies can be used
// concurrently.
type handler struct {
	level slog.Leveler
	out   *atomic.Pointer[output] // shared by all copies, so that SetTarget affects all of them; nil discards records

	fields []field // from WithAttrs
	group  string  // from WithGroup: the prefix of later keys
}

// output is a destination of records.
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

// Enabled reports whether records of this level are written at the current log level.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle never blocks and never fails.
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

// WithAttrs returns a handler that adds these attributes to every record.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	extended := *h
	extended.fields = slices.Clip(h.fields)
	for _, a := range attrs {
		extended.fields = appendAttr(extended.fields, h.group, a)
	}
	return &extended
}

// WithGroup returns a handler that adds later attributes to the group.
func (h *handler) WithGroup(name string) slog.Handler {
	extended := *h
	if name != "" {
		extended.group += name + "."
	}
	return &extended
}

// appendAttr appends an attribute, or the members of a group. It ignores an empty attribute, as
// slog.Handler requires.
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

// text returns a value as text: that of an error's Error method or a Stringer's String method, if
// it has one. These may panic, for example because the value is a nil pointer; a record must not
// crash the daemon.
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

// message returns the text for people: the text attribute or else the record's message, followed by
// the detail and the error if there are any.
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
