package main

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printable returns s with every character escaped that a terminal would act on, or that would make text look like other text: what an agent says
// must not reach the user's terminal as anything but text.
func printable(s string) string {
	if strings.IndexFunc(s, unsafeRune) < 0 && utf8.ValidString(s) {
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
		case unsafeRune(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unsafeRune(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unsafeRune tells of a control character, or one that reverses the direction of text.
func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// printableLines is printable for text of several lines: newlines and tabs stay.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j, part := range parts {
			parts[j] = printable(part)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// ellipsize shortens s to at most width characters.
func ellipsize(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return string([]rune(s)[:width-1]) + "…"
}

// ellipsizePath shortens a path to at most width characters, keeping its end.
func ellipsizePath(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return "…" + string(runes[len(runes)-width+1:])
}

// shortSpan writes a duration as its two greatest units: "2m 15s".
func shortSpan(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"y", 365 * 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	d = max(d, 0)
	for i, unit := range units {
		if d < unit.size && unit.size != time.Second {
			continue
		}
		text := fmt.Sprintf("%d%s", d/unit.size, unit.name)
		if i+1 < len(units) {
			if rest := d % unit.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf(" %d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

// moment is a time from the bus: microseconds since 1970.
func moment(usec uint64) time.Time {
	if usec > math.MaxInt64 {
		usec = 0
	}
	return time.UnixMicro(int64(usec))
}

// age is how long ago a time from the bus is.
func age(usec uint64, now time.Time) string {
	if usec == 0 {
		return "-"
	}
	return shortSpan(now.Sub(moment(usec)))
}

// timestamp writes a time from the bus as systemctl does.
func timestamp(usec uint64) string {
	return moment(usec).Format("Mon 2006-01-02 15:04:05 MST")
}

// since writes a time from the bus with its age: "Sat 2026-11-21 07:44:20 UTC; 2m 15s ago".
func since(usec uint64, now time.Time) string {
	return timestamp(usec) + "; " + age(usec, now) + " ago"
}

// size writes bytes as systemctl does: 212.4M.
func size(n uint64) string {
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

// cpuTime writes nanoseconds of processor time: 3.201s, 2min 3.201s.
func cpuTime(nsec uint64) string {
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

// available tells whether a counter of a control group is a number.
func available(n uint64) bool { return n != math.MaxUint64 }

// shellWords writes an argument vector so that a shell would read it back.
func shellWords(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = shellWord(arg)
	}
	return strings.Join(words, " ")
}

func shellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:=@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plural writes a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
