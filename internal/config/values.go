package config

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Infinity is the time span "infinity": never.
const Infinity time.Duration = math.MaxInt64

const (
	day   = 24 * time.Hour
	month = 2629800 * time.Second  // 30.44 days, as systemd.time(7) has it
	year  = 31557600 * time.Second // 365.25 days
)

// timeUnits are the units of systemd.time(7). A number without a unit means seconds.
var timeUnits = map[string]time.Duration{
	"nsec": 1, "ns": 1,
	"usec": time.Microsecond, "us": time.Microsecond, "μs": time.Microsecond, "µs": time.Microsecond,
	"msec": time.Millisecond, "ms": time.Millisecond,
	"": time.Second, "seconds": time.Second, "second": time.Second, "sec": time.Second, "s": time.Second,
	"minutes": time.Minute, "minute": time.Minute, "min": time.Minute, "m": time.Minute,
	"hours": time.Hour, "hour": time.Hour, "hr": time.Hour, "h": time.Hour,
	"days": day, "day": day, "d": day,
	"weeks": 7 * day, "week": 7 * day, "w": 7 * day,
	"months": month, "month": month, "M": month,
	"years": year, "year": year, "y": year,
}

// FormatTimeSpan formats a duration for people with its two largest units of systemd.time(7): "2m
// 15s". Less than a second is "0s".
func FormatTimeSpan(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"y", 365 * day}, {"w", 7 * day}, {"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
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

// ParseTimeSpan parses a time span in the syntax of systemd.time(7): "10" (seconds), "1min 30s",
// "1.5h", "2d3h", "infinity" (Infinity). The result is never negative.
func ParseTimeSpan(s string) (time.Duration, error) {
	rest := strings.Trim(s, blank)
	if rest == "infinity" {
		return Infinity, nil
	}
	if rest == "" {
		return 0, errors.New("time span is empty")
	}
	var sum time.Duration
	for rest != "" {
		whole, fraction, unit, after, ok := cutNumber(rest)
		length, known := timeUnits[unit]
		if !ok || !known {
			return 0, fmt.Errorf("invalid time span %q: expected a value such as 90, 1min 30s, 7d or infinity", s)
		}
		span, ok := scale(whole, fraction, int64(length))
		if !ok || int64(sum) >= math.MaxInt64-span { // the largest value is Infinity
			return 0, fmt.Errorf("time span %q is too long", s)
		}
		sum += time.Duration(span)
		rest = after
	}
	return sum, nil
}

// byteUnits are to the base 1024, as systemd uses them for memory.
var byteUnits = map[string]int64{
	"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60,
}

// ParseBytes parses a size in bytes: "65536", "64K", "1.5G". The suffixes B, K, M, G, T, P and E
// are to the base 1024. The result is never negative.
func ParseBytes(s string) (int64, error) {
	whole, fraction, unit, after, ok := cutNumber(strings.Trim(s, blank))
	factor, known := byteUnits[unit]
	if !ok || !known || after != "" {
		return 0, fmt.Errorf("invalid size %q: expected a value such as 65536, 64K, 16M or 1G", s)
	}
	n, ok := scale(whole, fraction, factor)
	if !ok {
		return 0, fmt.Errorf("size %q is too large", s)
	}
	return n, nil
}

// cutNumber cuts "DIGITS[.DIGITS] [UNIT]" and the blanks after it from the start of s. The digits
// before the point may be missing, those after it may not.
func cutNumber(s string) (whole, fraction, unit, rest string, ok bool) {
	whole, rest = cutDigits(s)
	if after, point := strings.CutPrefix(rest, "."); point {
		fraction, rest = cutDigits(after)
		if fraction == "" {
			return "", "", "", "", false
		}
	}
	if whole == "" && fraction == "" {
		return "", "", "", "", false
	}
	spaced := strings.TrimLeft(rest, blank)
	end := strings.IndexAny(spaced, blank+"0123456789.+-")
	if end < 0 {
		end = len(spaced)
	}
	if end == 0 && rest != "" && rest == spaced { // "1.2.3" is not two numbers
		return "", "", "", "", false
	}
	return whole, fraction, spaced[:end], strings.TrimLeft(spaced[end:], blank), true
}

func cutDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

// scale multiplies a decimal number by a unit and rounds down. It uses integers so that no
// precision is lost.
func scale(whole, fraction string, unit int64) (int64, bool) {
	n, err := strconv.ParseInt("0"+whole, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, false
	}
	n *= unit
	// further digits are worth less than 1, and 10^18 fits into 64 bits
	fraction = fraction[:min(len(fraction), 18)]
	digits, _ := strconv.ParseUint("0"+fraction, 10, 64)
	places := uint64(math.Pow10(len(fraction)))
	hi, lo := bits.Mul64(digits, uint64(unit))
	part, _ := bits.Div64(hi, lo, places) // digits < places, so it is less than unit
	if n > math.MaxInt64-int64(part) {
		return 0, false
	}
	return n + int64(part), true
}

// ParseBool parses a boolean with the spellings that systemd accepts.
func ParseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	}
	return false, fmt.Errorf("invalid value %q: expected yes or no", s)
}
