// Package wording formats what corralctl shows to people: session states with their colours, times,
// sizes, and text from other programs with its control characters escaped. Every verb that shows
// sessions uses it, so that the same state looks the same everywhere.
package wording

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/plaintext"
)

// Printable returns s with every character escaped that a terminal would interpret as a command, or
// that would make the text look like different text. Text from an agent must not control the user's
// terminal.
func Printable(s string) string {
	if strings.IndexFunc(s, plaintext.IsUnsafe) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !plaintext.IsUnsafe(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// PrintableJSON returns JSON text with the characters escaped that Printable escapes; encoding/json
// escapes only some of them. The decoded value stays the same.
func PrintableJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < 0x20 || !plaintext.IsUnsafe(r): // line feeds between tokens: those in strings are escaped already
			b.WriteRune(r)
		case r > 0xffff:
			first, second := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, first, second)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// PrintableLines is Printable for text of several lines: it keeps newlines and tabs.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j, part := range parts {
			parts[j] = Printable(part)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// Width returns the number of terminal columns that a printable text takes.
func Width(s string) int { return displaywidth.String(s) }

// Ellipsize shortens a printable text to at most width columns.
func Ellipsize(s string, width int) string {
	switch {
	case width < 1:
		return ""
	case len(s) <= width: // no character takes more columns than bytes
		return s
	}
	return displaywidth.TruncateString(s, width, "…")
}

// EllipsizePath shortens a printable path to at most width columns and keeps its end.
func EllipsizePath(s string, width int) string {
	over := Width(s) - width
	switch {
	case over <= 0:
		return s
	case width < 1:
		return ""
	}
	cut := 0
	// one column more, for the ellipsis
	for g := displaywidth.StringGraphemes(s); over >= 0 && g.Next(); over -= g.Width() {
		cut += len(g.Value())
	}
	return "…" + s[cut:]
}

// Span formats a duration as its two largest units: "2m 15s".
func Span(d time.Duration) string { return config.FormatTimeSpan(d) }

// BusTime converts a time from the bus, in microseconds since 1970.
func BusTime(usec uint64) time.Time {
	if usec > math.MaxInt64 {
		usec = 0
	}
	return time.UnixMicro(int64(usec))
}

// Age formats how long ago a time from the bus was, in microseconds; "-" for 0.
func Age(usec uint64, now time.Time) string {
	if usec == 0 {
		return "-"
	}
	return Span(now.Sub(BusTime(usec)))
}

// Timestamp formats a time from the bus as systemctl does.
func Timestamp(usec uint64) string {
	return BusTime(usec).Format("Mon 2006-01-02 15:04:05 MST")
}

// TimestampAge formats a time from the bus with its age: "Sat 2026-11-21 07:44:20 UTC; 2m 15s ago".
func TimestampAge(usec uint64, now time.Time) string {
	return Timestamp(usec) + "; " + Age(usec, now) + " ago"
}

// Size formats a number of bytes as systemctl does: 212.4M.
func Size(n uint64) string {
	const units = "BKMGTPE"
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.1f%c", value, units[unit])
}

// CPUTime formats nanoseconds of processor time: 3.201s, 2min 3.201s.
func CPUTime(nsec uint64) string {
	d := time.Duration(min(nsec, math.MaxInt64)).Truncate(time.Millisecond)
	seconds := fmt.Sprintf("%.3fs", (d % time.Minute).Seconds())
	if d < time.Minute {
		return seconds
	}
	if d < time.Hour {
		return fmt.Sprintf("%dmin %s", d/time.Minute, seconds)
	}
	return fmt.Sprintf("%dh %dmin %s", d/time.Hour, d%time.Hour/time.Minute, seconds)
}

// IsAvailable returns whether a counter of a control group has a value. The bus has the largest
// uint64 for a counter that does not.
func IsAvailable(n uint64) bool { return n != math.MaxUint64 }

// ShellWords quotes an argument vector so that a shell splits it into the same arguments.
func ShellWords(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = ShellWord(arg)
	}
	return strings.Join(words, " ")
}

// ShellWord quotes one argument so that a shell reads it as one word.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:=@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Plural formats a count with its noun: "1 word", "2 words".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
