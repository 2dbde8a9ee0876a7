package transcript

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// costlyStreams are the streams with the highest cost per byte: first is written once, again is
// then repeated.
var costlyStreams = map[string]struct{ first, again string }{
	"plain text":      {"", "one line of an agent's output\r\n"},
	"wide characters": {"", "漢字漢字漢字\r\n"},
	"marks":           {"x", "\u0301"},
	"line feeds":      {"", "\n"},
	"screens changed over long lines": {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100),
		"\x1b[?1049h\x1b[?1049l"},
	"screens changed over blank lines": {strings.Repeat(strings.Repeat(" ", maxLine-8)+"\r\n", 100),
		"\x1b[?47h\x1b[?47l"},
	"screens changed far down":         {"\x1b[200;1H", "\x1b[?47h\x1b[?47l"},
	"a screen of blanks cleared":       {"\x1b[200;1H", strings.Repeat(" ", 100) + "\x1b[2J"},
	"cleared far down":                 {"\x1b[200;1H", "\x1b[2J"},
	"cleared with a character":         {"\x1b[200;1H", "x\x1b[2J"},
	"reset":                            {"\x1b[200;1H", "\x1bc"},
	"reset far down":                   {"", "\x1b[200;1H\x1bc"},
	"a long line erased to the left":   {strings.Repeat("x", maxLine-8), "\x1b[1K"},
	"a screen erased to the top":       {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100), "\x1b[1J"},
	"a long line deleted in parts":     {"", strings.Repeat("x", maxLine-8) + "\r" + strings.Repeat("\x1b[P", maxLine-8)},
	"characters inserted":              {"", "x\r\x1b[500@"},
	"characters inserted in wide ones": {"漢漢漢漢漢漢\r\x1b[C", "\x1b[@"},
	"characters erased":                {strings.Repeat("x", maxLine-8) + "\r", "\x1b[500X"},
	"characters repeated":              {"", "x\x1b[500b\r"},
	"wide characters repeated":         {"", "漢\x1b[500b\r"},
	"marks repeated":                   {"", "\u0301\x1b[500b\r"},
	"far columns":                      {"", "\x1b[500Cx\r\n"},
	"far columns on one line":          {"", "\x1b[500Cx\r"},
	"scrolled up":                      {"\x1b[200;1H", "\x1b[500S"},
	"scrolled up over long lines":      {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100), "\x1b[S"},
	"scrolled down":                    {"\x1b[200;1H", "\x1b[500T"},
	"scrolled by a line":               {"\x1b[2;200r\x1b[200;1H", "\n"},
	"lines inserted":                   {"\x1b[200;1H\x1b[H", "\x1b[500L"},
	"lines deleted":                    {"\x1b[200;1H\x1b[H", "\x1b[500M"},
	"reverse line feeds":               {"\x1b[200;1H\x1b[H", "\x1bM"},
	"up above more lines than are kept": {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100) + "\x1b[500A",
		"\x1b[A"},
	"regions":                           {"", "\x1b[1;200r\x1b[1;199r"},
	"a sequence that does not end":      {"\x1b[", "1;"},
	"a title that does not end":         {"\x1b]", "1;"},
	"modes":                             {"", "\x1b[?;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;h"},
	"the beginnings of characters":      {"", "\xe2\x9c"},
	"tabs":                              {"", "\t\t\t\t\t\t\t\t\r"},
	"a line that does not end":          {"", "x"},
	"a line that does not end, in back": {strings.Repeat("x", maxLine-8), "\b\b\bxxx"},
}

// narrowPrefix begins the names of the streams that are written to a terminal of 1 column and 1
// row.
const narrowPrefix = "narrow: "

func init() {
	for _, name := range []string{"plain text", "wide characters", "marks", "line feeds", "characters repeated",
		"far columns", "scrolled up", "tabs", "a line that does not end", "screens changed far down"} {
		costlyStreams[narrowPrefix+name] = costlyStreams[name]
	}
}

// TestTranscript_CostPerByteIsBounded: the cost of a byte does not depend on the bytes before it,
// so that any log can be read to its end. The test measures processor time, which the load of other
// processes does not change.
func TestTranscript_CostPerByteIsBounded(t *testing.T) {
	// per byte; with the race detector the costliest stream takes a third of it
	const size, limit = 128 << 10, 40 * time.Microsecond
	for name, c := range costlyStreams {
		t.Run(name, func(t *testing.T) {
			transcript := New(io.Discard)
			if strings.HasPrefix(name, narrowPrefix) {
				transcript.Resize(1, 1)
			}
			_, err := io.WriteString(transcript, c.first)
			require.NoError(t, err)
			part := []byte(strings.Repeat(c.again, max(1, 4096/len(c.again))))
			began, written := processorTime(t), 0
			for written < size && processorTime(t)-began < size*limit {
				_, err = transcript.Write(part)
				require.NoError(t, err)
				written += len(part)
			}
			spent := processorTime(t) - began
			t.Logf("%d ns for a byte", int(spent)/written)
			assert.Less(t, spent, time.Duration(written)*limit, "%d bytes", written)
			require.NoError(t, transcript.Close())
		})
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
