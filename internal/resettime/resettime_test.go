package resettime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/resettime"
)

func TestParse(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 11, 26, 5, 27, 10, 0, time.UTC) // 6:27 in Berlin
	for _, c := range []struct{ text, want string }{
		// Claude Code
		{"You've hit your 5-hour limit · resets 7:30am (UTC)", "2026-11-26T07:31:00Z"},
		{"You've hit your 5-hour limit · resets 1:27am (UTC)", "2026-11-27T01:28:00Z"},
		{"You've hit your weekly limit · resets Nov 29, 5:27am (UTC)", "2026-11-29T05:28:00Z"},
		{"You've hit your weekly limit · resets Jan 2, 5am (Europe/London)", "2027-01-02T05:01:00Z"},
		{"You've hit your session limit · resets 3am (America/New_York)", "2026-11-26T08:01:00Z"},
		{"You've hit your Opus limit · resets 12am (Europe/Berlin)", "2026-11-26T23:01:00Z"},
		{"You've hit your limit · resets 12:30pm (Nowhere/Atlantis)", "2026-11-26T11:31:00Z"}, // local
		// Gemini CLI
		{"Usage limit reached for gemini-3.8-flash. Access resets at 7:23 AM UTC. /stats model", "2026-11-26T07:24:00Z"},
		{"Usage limit reached.\nAccess resets at 9:23 AM GMT+2.", "2026-11-26T07:24:00Z"},
		{"Access resets at 9:23 AM GMT+5:30.", "2026-11-27T03:54:00Z"},
		{"Access resets at 9:23 PM GMT-3:30.", "2026-11-27T00:54:00Z"},
		{"Access resets at 7:23 AM CET.", "2026-11-26T06:24:00Z"},
		// Codex
		{"visit https://chatgpt.com/settings/usage or try again at 7:35 AM.", "2026-11-26T06:36:00Z"},
		{"purchase more credits or try\nagain at 7:35 PM.", "2026-11-26T18:36:00Z"},
		{"or try again at Nov 29th, 2026 7:35 AM.", "2026-11-29T06:36:00Z"},
		{"or try again at Dec 1st, 2027 7:35 AM.", "2027-12-01T06:36:00Z"},
		// in this minute, and before
		{"resets 5:27am (UTC)", "2026-11-26T05:28:00Z"},
		{"resets 5:26am (UTC)", "2026-11-27T05:27:00Z"},
		{"resets Nov 20, 5:10am (UTC)", "2026-11-20T05:11:00Z"},
		// none
		{"You've hit your usage limit. Try again later.", ""},
		{"Rate limit reached", ""},
		{"resets 13:30am (UTC)", ""},
		{"resets 7:61am (UTC)", ""},
		{"resets 7:30 (UTC)", ""},
		{"resets Foo 29, 5:27am (UTC)", ""},
		{"resets Nov 42, 5:27am (UTC)", ""},
		{"resets 99999999999999999999am", ""},
		{"", ""},
	} {
		got, ok := resettime.Parse(c.text, now, berlin)
		assert.Equal(t, c.want != "", ok, c.text)
		if ok {
			assert.Equal(t, c.want, got.UTC().Format(time.RFC3339), c.text)
		}
	}
}

func TestFormat(t *testing.T) {
	now := time.Date(2026, 11, 26, 5, 27, 10, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		time.Hour: "06:27", -time.Hour: "04:27", 24 * time.Hour: "Fri 05:27", 5 * 24 * time.Hour: "Tue 05:27",
		7 * 24 * time.Hour: "Dec 3 05:27",
	} {
		assert.Equal(t, want, resettime.Format(now.Add(after), now))
	}
}

// FuzzParse checks that no text makes the parser crash, or gives a time that is far from now.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"resets Nov 29, 5:27am (Europe/London)", "resets 9:23 AM GMT+2.", "try again at Nov 29th, 2026 7:35 AM.",
		"resets 1am (../../etc/passwd)", "resets 1am (GMT+99:99)",
	} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 26, 5, 27, 10, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := resettime.Parse(text, now, time.UTC); ok {
			assert.Less(t, got.Year(), 10002)
		}
	})
}
