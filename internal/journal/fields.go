package journal

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Attributes with a meaning of their own; for the fields see systemd.journal-fields(7). Any other
// attribute becomes a field with a prefix: state becomes CORRAL_STATE, and the member of a group
// CORRAL_GROUP_MEMBER.
const (
	messageIDKey = "message_id" // MESSAGE_ID: the kind of the record
	unitKey      = "unit"       // USER_UNIT: the unit concerned, so that "journalctl --user -u UNIT" shows the record
	errKey       = "err"        // CORRAL_ERROR; also appended to MESSAGE
	detailKey    = "detail"     // one sentence for a person that is not an error; also appended to MESSAGE
	textKey      = "text"       // MESSAGE, instead of the constant message
)

const (
	maxValue     = 8 << 10  // bytes; a longer value of a field is truncated
	maxRecord    = 48 << 10 // bytes; further fields are omitted, because a record has to fit into a datagram
	maxFieldName = 64       // journald ignores fields with longer names
)

// encoder returns a function that encodes records as datagrams of the Native Journal Protocol. A
// datagram consists of lines NAME=value. If the value contains line breaks, it consists of NAME,
// the length as 64 bits in little-endian order, and the value.
func encoder(program string) encodeFunc {
	return func(level slog.Level, msg string, fields []field) []byte {
		b := make([]byte, 0, 512)
		b = appendField(b, "PRIORITY", strconv.Itoa(priority(level)))
		b = appendField(b, "SYSLOG_IDENTIFIER", program)
		b = appendField(b, "MESSAGE", message(msg, fields))
		for _, f := range fields {
			if f.key != textKey {
				b = appendField(b, fieldName(f.key), f.value)
			}
		}
		return b
	}
}

// priority returns the syslog priority of a level, see sd-daemon(3).
func priority(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}

// fieldName returns the field of an attribute. It contains only capital letters, digits and
// underscores, because journald ignores fields with other names.
func fieldName(key string) string {
	switch key {
	case messageIDKey:
		return "MESSAGE_ID"
	case unitKey:
		return "USER_UNIT"
	case errKey:
		return "CORRAL_ERROR"
	}
	name := []byte("CORRAL_" + strings.ToUpper(key))
	for i, c := range name {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			name[i] = '_'
		}
	}
	return string(name[:min(len(name), maxFieldName)])
}

func appendField(b []byte, name, value string) []byte {
	value = truncate(value)
	if len(b)+len(name)+len(value)+10 > maxRecord {
		return b
	}
	b = append(b, name...)
	if strings.IndexByte(value, '\n') < 0 {
		b = append(b, '=')
	} else {
		b = append(b, '\n')
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	}
	return append(append(b, value...), '\n')
}

// truncate limits the length of a value and makes it valid UTF-8, which journalctl shows as text.
func truncate(value string) string {
	if len(value) > maxValue {
		value = value[:maxValue] + "…"
	}
	return strings.ToValidUTF8(value, "\ufffd")
}

// lineEncoder returns a function that encodes records as lines for people: "corrald: warning:
// message: error (session=shop state=failed)".
func lineEncoder(program string) encodeFunc {
	return func(level slog.Level, msg string, fields []field) []byte {
		line := program + ": " + levelPrefix(level) + printable(truncate(message(msg, fields)))
		var facts []string
		for _, f := range fields {
			if !slices.Contains([]string{messageIDKey, errKey, detailKey, textKey}, f.key) {
				facts = append(facts, printable(f.key)+"="+quote(truncate(f.value)))
			}
		}
		if len(facts) > 0 {
			line += " (" + strings.Join(facts, " ") + ")"
		}
		return append([]byte(line[:min(len(line), maxRecord)]), '\n')
	}
}

func levelPrefix(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error: "
	case level >= slog.LevelWarn:
		return "warning: "
	case level >= slog.LevelInfo:
		return ""
	}
	return "debug: "
}

// printable replaces line breaks and control characters with spaces, so that a message is one line
// and cannot control the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func quote(s string) string {
	isSpecial := func(r rune) bool { return strings.ContainsRune(` "()`, r) || !unicode.IsPrint(r) }
	if s == "" || strings.ContainsFunc(s, isSpecial) {
		return strconv.Quote(s)
	}
	return s
}
