package shimwire

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var fullSpec = Spec{
	RunID: "0123-4567", Dir: "/home/u/shop",
	Args: []string{"claude", "", "a b\n$c \xff"}, Env: []string{"PATH=/bin", "EMPTY=", "X=a=b"},
	StateDir: "/state/shop", Socket: "/run/shop/shim.sock", LogMax: 16 << 20, IdleAfter: 3 * time.Second,
	Notify: "/run/shop/notify", Prompt: "fix it\nall", HoldInput: true, IgnoreOSC7501: true,
	TitleReady: "^◇", TitleWorking: "^✦", TitleBlocked: "^✋",
	SetupPattern: "Do you trust", ReadyTimeout: 10 * time.Second,
	Session: "shop", Program: "claude",
}

func TestSpec_RoundTrip(t *testing.T) {
	for name, want := range map[string]Spec{
		"full":    fullSpec,
		"minimal": {RunID: "r", Args: []string{"true"}, StateDir: "/s", Socket: "/k"},
		"large":   {RunID: "r", Args: []string{strings.Repeat("x", 1<<20)}, StateDir: "/s", Socket: "/k"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSpec(want.Append(nil))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

func TestParseSpec_RejectsIncompleteSpecs(t *testing.T) {
	whole := fullSpec.Append(nil)
	for n := range whole {
		_, err := ParseSpec(whole[:n])
		require.Error(t, err, "cut off after %d bytes", n)
	}
	for name, s := range map[string]Spec{
		"without a run":             {Args: []string{"true"}, StateDir: "/s", Socket: "/k"},
		"without a command":         {RunID: "r", StateDir: "/s", Socket: "/k"},
		"without a state directory": {RunID: "r", Args: []string{"true"}, Socket: "/k"},
		"without a socket":          {RunID: "r", Args: []string{"true"}, StateDir: "/s"},
		"with a negative limit":     {RunID: "r", Args: []string{"true"}, StateDir: "/s", Socket: "/k", LogMax: -1},
	} {
		_, err := ParseSpec(s.Append(nil))
		assert.Error(t, err, name)
	}
}

func TestParse_IgnoresUnknownFields(t *testing.T) {
	got, err := ParseSpec(append(appendString(nil, 'Z', "new"), fullSpec.Append(nil)...))
	require.NoError(t, err)
	assert.Equal(t, fullSpec, got)
	m, err := ParseMessage(appendNumber((&Message{Kind: Idle, Seq: 3}).Append(nil), 'Z', 9))
	require.NoError(t, err)
	assert.Equal(t, Message{Kind: Idle, Seq: 3}, m)
}

func TestMessage_RoundTrip(t *testing.T) {
	when := time.UnixMicro(1_700_000_000_123_456)
	for _, want := range []Message{
		{
			Kind: Hello, RunID: "r", ShimPID: 10, AgentPID: 11, AgentStart: 1 << 40,
			Started: when, Idle: true, Pane: true, Since: when,
		},
		{Kind: Working, Since: when, SinceMonotonic: time.Hour},
		{
			Kind: StatusReport, Source: word.Notify, Activity: "waiting", Reason: "question",
			Text: "which one? \u00e9", Since: when, Seq: 4,
		},
		{Kind: Ready, Since: when},
		{Kind: Prompted},
		{Kind: PaneClosed},
		{Kind: Input, Seq: 1<<32 - 1, Flags: FlagEnter | FlagMore, Data: []byte("text\x00\xff")},
		{Kind: InputDone, Seq: 7, Error: "the agent has ended"},
		{Kind: Ended, Seq: 255},
		{Kind: 'Z'},
	} {
		got, err := ParseMessage(want.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestMaxData_FitsIntoOneDatagram(t *testing.T) {
	m := Message{Kind: Input, Seq: 1<<32 - 1, Flags: 1<<32 - 1, Data: make([]byte, MaxData)}
	assert.LessOrEqual(t, len(m.Append(nil)), MaxMessage)
}

func TestParseMessage_RejectsMalformedMessages(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":                "",
		"a field without length": "tq",
		"a field that is short":  "td\x05abc",
		"an endless length":      "td\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"a huge length":          "td\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a number without bytes": "tq\x00",
		"a number and more":      "tq\x02\x01\x01",
		"a number below zero":    "tq\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		_, err := ParseMessage([]byte(b))
		assert.Error(t, err, name)
	}
}

// FuzzParseSpec checks that encoding an accepted spec and decoding it again yields the same spec.
func FuzzParseSpec(f *testing.F) {
	f.Add(fullSpec.Append(nil))
	f.Add([]byte("r\x01ra\x01as\x01sk\x01k.\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSpec(b)
		if err != nil {
			return
		}
		again, err := ParseSpec(s.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, s, again)
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte("h"))
	m := Message{Kind: Input, Seq: 4, Flags: 1, Data: []byte("x"), Error: "e", Idle: true, Since: time.UnixMicro(5)}
	f.Add(m.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		once, err := ParseMessage(m.Append(nil))
		require.NoError(t, err)
		twice, err := ParseMessage(once.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, once, twice)
	})
}

func TestSanitizeText_TruncatesLongTexts(t *testing.T) {
	for _, row := range []struct{ text, end string }{
		{"short", "short"},
		{strings.Repeat("a", MaxText), "aa"},
		{strings.Repeat("a", MaxText+1), "a…"},
		{strings.Repeat("é", MaxText), "é…"},
	} {
		got := SanitizeText(row.text)
		assert.LessOrEqual(t, len(got), MaxText)
		assert.True(t, utf8.ValidString(got) && strings.HasSuffix(got, row.end), "%q", got)
	}
}
