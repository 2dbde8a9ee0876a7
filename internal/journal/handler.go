package journal

import (
	"context"
	"log/slog"
	"slices"
)

// field is an attribute of a record, with its value as text.
type field struct {
	key   string // prefixed with the names of its groups: "group.key"
	value string
}

// handler encodes records and puts them into the queue of the log's current output. It is
// immutable, so that copies can be used concurrently.
type handler struct {
	log    *Log
	fields []field // from WithAttrs
	group  string  // from WithGroup: the prefix of later keys
}

// Enabled reports whether records of this level are written at the current log level.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.log.level.Level()
}

// Handle never blocks and never fails.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	o := h.log.out.Load()
	if o == nil {
		return nil
	}
	fields := slices.Clip(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		fields = appendAttr(fields, h.group, a)
		return true
	})
	o.add(o.encode(o.program, r.Level, r.Message, fields))
	return nil
}

// WithAttrs returns a handler that adds these attributes to every record.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := slices.Clip(h.fields)
	for _, a := range attrs {
		fields = appendAttr(fields, h.group, a)
	}
	return &handler{h.log, fields, h.group}
}

// WithGroup returns a handler that adds later attributes to the group.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{h.log, h.fields, h.group + name + "."}
}

// appendAttr appends an attribute, or the members of a group. It ignores an empty attribute, as
// slog.Handler requires.
func appendAttr(fields []field, group string, a slog.Attr) []field {
	v := a.Value.Resolve()
	switch {
	case v.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range v.Group() {
			fields = appendAttr(fields, group, member)
		}
	case a.Key != "":
		fields = append(fields, field{group + a.Key, truncate(v.String())})
	}
	return fields
}
