package journal

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Attributes that mean something to the journal itself (systemd.journal-fields(7)). Every other
// one, state for example, is the field CORRAL_STATE. A group's members are CORRAL_GROUP_MEMBER.
const (
	messageIDKey = "message_id" // MESSAGE_ID: what kind of record it is
	unitKey      = "unit"       // USER_UNIT: the unit it is about, so that "journalctl --user -u UNIT" shows it
	errKey       = "err"        // CORRAL_ERROR, and the end of MESSAGE
	detailKey    = "detail"     // the same for what is no error: one sentence for a person
	textKey      = "text"       // MESSAGE itself, in place of the constant message
)

const (
	maxValue     = 8 << 10  // bytes of one field's value; what is longer is cut
	maxRecord    = 48 << 10 // bytes of one record, which has to fit into a datagram; what would make it longer is left out
	maxFieldName = 64       // journald leaves out fields with longer names
)

// encoder makes datagrams of the Native Journal Protocol: lines NAME=value, or, for a value with
// line breaks in it, NAME, its length as 64 bits in little endian, the value.
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

// priority is syslog's of sd-daemon(3).
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

// fieldName has capital letters, digits and underscores only: journald leaves out others.
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
	value = cut(value)
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

// cut makes the value valid UTF-8, which journalctl shows as text, and not too long.
func cut(value string) string {
	if len(value) > maxValue {
		value = value[:maxValue] + "…"
	}
	return strings.ToValidUTF8(value, "\ufffd")
}

// lineEncoder makes lines for a person: "corrald: warning: message: error (session=shop
// state=failed)".
func lineEncoder(program string) encodeFunc {
	return func(level slog.Level, msg string, fields []field) []byte {
		line := program + ": " + levelPrefix(level) + printable(cut(message(msg, fields)))
		var facts []string
		for _, f := range fields {
			if !slices.Contains([]string{messageIDKey, errKey, detailKey, textKey}, f.key) {
				facts = append(facts, printable(f.key)+"="+quote(cut(f.value)))
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

// printable keeps a message to one line, and control sequences from the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func quote(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '"' || r == '(' || r == ')' || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
