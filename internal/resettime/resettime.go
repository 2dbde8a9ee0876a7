// Package resettime finds in an agent's message about a usage limit when that limit resets. No
// agent reports this as a number to its hooks, or shows it as one.
package resettime

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pattern matches a time after one of the words that introduce it: "resets 7:30am (UTC)", "resets
// Nov 29, 5am (Europe/London)", "resets at 9:23 AM GMT+2.", "try again at Nov 29th, 2026 7:35 AM.".
// A line may have been broken at any blank.
var pattern = regexp.MustCompile(`(?i)(?:resets|try\s+again)\s+(?:at\s+)?` +
	`(?:([a-z]{3})[a-z]*\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(?:(\d{4}),?\s+)?(?:at\s+)?)?` + // month, day, year
	`(\d{1,2})(?::(\d{2}))?\s*([ap]m)` + // time
	`(?:\s+\(?((?:GMT|UTC)[+-]\d{1,2}(?::\d{2})?|[a-z]+(?:/[a-z0-9_+-]+)*)\b)?`) // time zone

// Parse returns the time that the text contains, at the end of the minute that it names: the limit
// may reset at any moment of that. A time without a date is the next one after now, and one without
// a zone, or with a zone that is not known here, is in local. It returns false if the text contains
// none.
func Parse(text string, now time.Time, local *time.Location) (reset time.Time, ok bool) {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, false
	}
	now = now.In(zone(m[7], local))
	hour, minute, ok := clock(m[4], m[5], m[6])
	if !ok {
		return time.Time{}, false
	}
	at := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, hour, minute, 0, 0, now.Location()).Add(time.Minute)
	}
	if m[1] == "" {
		reset = at(now.Date())
		if reset.Before(now) {
			reset = at(now.Year(), now.Month(), now.Day()+1)
		}
		return reset, true
	}
	month, err := time.Parse("Jan", strings.ToUpper(m[1][:1])+strings.ToLower(m[1][1:]))
	day, _ := strconv.Atoi(m[2])
	if err != nil || day < 1 || day > 31 {
		return time.Time{}, false
	}
	if m[3] != "" {
		year, _ := strconv.Atoi(m[3])
		return at(year, month.Month(), day), true
	}
	reset = at(now.Year(), month.Month(), day)
	if reset.Before(now.AddDate(0, -6, 0)) {
		reset = at(now.Year()+1, month.Month(), day)
	}
	return reset, true
}

// clock returns a time of day, which is written with twelve hours.
func clock(hours, minutes, half string) (hour, minute int, ok bool) {
	hour, _ = strconv.Atoi(hours)
	minute, _ = strconv.Atoi(minutes)
	if hour < 1 || hour > 12 || minute > 59 {
		return 0, 0, false
	}
	hour %= 12
	if strings.EqualFold(half, "pm") {
		hour += 12
	}
	return hour, minute, true
}

// zone returns the time zone with this name: UTC, GMT+2, or one of the time zone database.
func zone(name string, local *time.Location) *time.Location {
	if offset := strings.TrimLeft(name, "GMTUCgmtuc"); len(name)-len(offset) == len("GMT") {
		hours, minutes, _ := strings.Cut(offset, ":")
		h, err := strconv.Atoi(hours)
		m, _ := strconv.Atoi(minutes)
		switch {
		case offset == "":
			return time.UTC
		case err == nil && h < 0 || strings.HasPrefix(hours, "-"):
			m = -m
		}
		return time.FixedZone(name, h*3600+m*60)
	}
	if !strings.Contains(name, "/") { // an abbreviation is that of the local zone
		return local
	}
	if known, err := time.LoadLocation(name); err == nil {
		return known
	}
	return local
}

// Format formats a time near now for a person: the time of day, if it is today; otherwise with the
// weekday, or with the date if it is six days away or more.
func Format(at, now time.Time) string {
	switch {
	case at.Format(time.DateOnly) == now.Format(time.DateOnly):
		return at.Format("15:04")
	case at.Sub(now).Abs() < 6*24*time.Hour:
		return at.Format("Mon 15:04")
	}
	return at.Format("Jan 2 15:04")
}
