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

// maxValue is the length in bytes at which a value is truncated, so that a record fits into a
// datagram and output of other programs does not fill the queue.
const maxValue = 8 << 10

// encodeFunc encodes a record of a program.
type encodeFunc func(program string, level slog.Level, msg string, fields []field) []byte

// encodeEntry encodes a record as a datagram of the Native Journal Protocol, which consists of
// lines NAME=value. A value with line breaks is NAME, its length as 64 bits in little-endian order,
// and the value.
func encodeEntry(program string, level slog.Level, msg string, fields []field) []byte {
	b := appendEntryField(make([]byte, 0, 512), "PRIORITY", strconv.Itoa(priority(level)))
	b = appendEntryField(b, "SYSLOG_IDENTIFIER", program)
	b = appendEntryField(b, "MESSAGE", message(msg, fields))
	for _, f := range fields {
		if f.key != textKey {
			b = appendEntryField(b, entryFieldName(f.key), f.value)
		}
	}
	return b
}

func appendEntryField(b []byte, name, value string) []byte {
	b = append(b, name...)
	if strings.Contains(value, "\n") {
		b = binary.LittleEndian.AppendUint64(append(b, '\n'), uint64(len(value)))
	} else {
		b = append(b, '=')
	}
	return append(append(b, value...), '\n')
}

// entryFieldName returns the field of an attribute. It contains only capital letters, digits and
// underscores, because journald ignores fields with other names.
func entryFieldName(key string) string {
	switch key {
	case messageIDKey:
		return "MESSAGE_ID"
	case unitKey:
		return "USER_UNIT"
	case errKey:
		return "CORRAL_ERROR"
	}
	return "CORRAL_" + strings.Map(func(r rune) rune {
		if (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return '_'
		}
		return r
	}, strings.ToUpper(key))
}

// encodeLine encodes a record as a line for people: "corrald: warning: message: error (session=shop
// state=failed)". Line breaks and control characters become spaces, so that a record is one line
// and cannot control the terminal.
func encodeLine(program string, level slog.Level, msg string, fields []field) []byte {
	line := program + ": " + levels[priority(level)].prefix + message(msg, fields)
	var facts []string
	for _, f := range fields {
		if !slices.Contains([]string{messageIDKey, errKey, detailKey, textKey}, f.key) {
			facts = append(facts, f.key+"="+quote(f.value))
		}
	}
	if len(facts) > 0 {
		line += " (" + strings.Join(facts, " ") + ")"
	}
	return append([]byte(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, line)), '\n')
}

func quote(s string) string {
	isSpecial := func(r rune) bool { return strings.ContainsRune(` "()`, r) || !unicode.IsPrint(r) }
	if s == "" || strings.ContainsFunc(s, isSpecial) {
		return strconv.Quote(s)
	}
	return s
}

// message returns the text for people: the text attribute or else the record's message, followed by
// the detail and the error if there are any.
func message(msg string, fields []field) string {
	var detail, err string
	for _, f := range fields {
		switch {
		case f.key == textKey:
			msg = f.value
		case f.value == "":
		case f.key == detailKey:
			detail = ": " + f.value
		case f.key == errKey:
			err = ": " + f.value
		}
	}
	return truncate(msg + detail + err)
}

// truncate limits the length of a value and makes it valid UTF-8, which journalctl shows as text.
func truncate(value string) string {
	if len(value) > maxValue {
		value = value[:maxValue] + "…"
	}
	return strings.ToValidUTF8(value, "\ufffd")
}
