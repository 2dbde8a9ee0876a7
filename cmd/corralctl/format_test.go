package main

import (
	"bufio"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

func TestNothingActsOnTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"Grüße ✳ 漢字":          "Grüße ✳ 漢字",
		"\x1b[31mred":         `\x1b[31mred`,
		"a\nb\tc":             `a\nb\tc`,
		"\u009b31m":           `\u009b31m`,
		"\xff\xfe":            `\xff\xfe`,
		"\uFFFD":              "\uFFFD",
		"left\u202etfel":      `left\u202etfel`,
		"bell\a delete\x7f":   `bell\x07 delete\x7f`,
		"separated\u2028line": `separated\u2028line`,
	} {
		assert.Equal(t, want, printable(in))
	}
	assert.Equal(t, "one\ntwo\t\\x1b[m\n", printableLines("one\ntwo\t\x1b[m\n"))
}

func TestShortSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                        "0s",
		0:                                   "0s",
		999 * time.Millisecond:              "0s",
		15 * time.Second:                    "15s",
		2*time.Minute + 15*time.Second:      "2m 15s",
		2 * time.Minute:                     "2m",
		time.Hour + time.Second:             "1h",
		3*time.Hour + 12*time.Minute:        "3h 12m",
		50 * time.Hour:                      "2d 2h",
		15 * 24 * time.Hour:                 "2w 1d",
		400 * 24 * time.Hour:                "1y 5w",
		time.Duration(math.MaxInt64):        "292y 24w",
		59*time.Minute + 59*time.Second + 1: "59m 59s",
	} {
		assert.Equal(t, want, shortSpan(d), d.String())
	}
}

func TestSizesAndProcessorTime(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 222_715_904: "212.4M", 1 << 40: "1.0T", math.MaxUint64: "16.0E"} {
		assert.Equal(t, want, size(n))
	}
	for n, want := range map[uint64]string{0: "0.000s", 3_201_000_000: "3.201s", 123_201_000_000: "2min 3.201s", 3_723_000_000_000: "1h 2min 3.000s"} {
		assert.Equal(t, want, cpuTime(n))
	}
}

func TestEllipses(t *testing.T) {
	assert.Equal(t, "abcdef", ellipsize("abcdef", 6))
	assert.Equal(t, "abcd…", ellipsize("abcdef", 5))
	assert.Empty(t, ellipsize("abcdef", 0))
	assert.Equal(t, "…/shop", ellipsizePath("~/src/shop", 6))
}

func TestWordsForAShell(t *testing.T) {
	assert.Equal(t, `claude --resume 'it'\''s' '' 'a b' '$HOME' '~'`, shellWords([]string{"claude", "--resume", "it's", "", "a b", "$HOME", "~"}))
}

func TestTablesFitTheTerminal(t *testing.T) {
	wide := table{
		columns: []column{{title: "ID", shrink: 4, cut: ellipsize}, {title: "STATE"}, {title: "WORKSPACE", shrink: 9, cut: ellipsizePath}},
		rows:    [][]cell{{{text: "a-long-identifier"}, {text: "running"}, {text: "/home/anna/src/shop"}}},
	}
	for _, row := range []struct {
		width int
		want  string
	}{
		{80, "ID                STATE   WORKSPACE\na-long-identifier running /home/anna/src/shop\n"},
		{40, "ID                STATE   WORKSPACE\na-long-identifier running …anna/src/shop\n"},
		{30, "ID           STATE   WORKSPACE\na-long-iden… running …src/shop\n"},
		{5, "ID   STATE   WORKSPACE\na-l… running …src/shop\n"},
	} {
		c, output := capture(t)
		c.outTTY = &terminal{width: row.width}
		c.printTable(wide)
		assert.Equal(t, row.want, output(), "%d columns", row.width)
	}
}

func TestTheListIsReadableAndTrue(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) uint64 { return uint64(now.Add(-d).UnixMicro()) }
	list := sessionList{lingering: false, sessions: []client.Session{
		{Id: "api", Agent: "codex", State: "running", Activity: "idle", IdleHint: true, IdleSinceHint: ago(135 * time.Second),
			StateChangeTimestamp: ago(time.Hour), WorkingDirectory: "/src/api"},
		{Id: "docs", Agent: "claude", State: "running", Activity: "waiting", Attention: "permission", StateChangeTimestamp: ago(90 * time.Second), WorkingDirectory: "/src/docs"},
		{Id: "fix-auth", Agent: "command", State: "failed", Activity: "unknown", StateChangeTimestamp: ago(26 * time.Hour), WorkingDirectory: "/src/with\x1b[31m escape"},
		{Id: "shop", Agent: "claude", State: "stale", StateChangeTimestamp: ago(time.Second), WorkingDirectory: "/src/shop"},
	}}
	c, output := capture(t)
	c.printList(list, now)
	assert.Equal(t, strings.TrimPrefix(`
ID       AGENT   STATE                 ACTIVITY            SINCE  WORKSPACE
api      codex   running (idle 2m 15s) idle                1h     /src/api
docs     claude  running               waiting: permission 1m 30s /src/docs
fix-auth command failed                -                   1d 2h  /src/with\x1b[31m escape
shop     claude  stale                 -                   1s     /src/shop

4 sessions, 1 waiting, 1 failed, 1 stale. Lingering is off.
`, "\n"), output())
}

// capture returns a ctl whose stdout is kept, and a function that returns it.
func capture(t *testing.T) (c *ctl, output func() string) {
	t.Helper()
	var text strings.Builder
	c = &ctl{err: os.Stderr}
	c.out = bufio.NewWriter(&text)
	return c, func() string {
		require.NoError(t, c.out.Flush())
		return text.String()
	}
}
