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

// costlyStreams are the streams that cost the most for a byte: what comes first, and what then comes again
// and again.
var costlyStreams = map[string]struct{ first, again string }{
	"plain text":                        {"", "one line of what an agent says\r\n"},
	"wide characters":                   {"", "漢字漢字漢字\r\n"},
	"marks":                             {"x", "\u0301"},
	"line feeds":                        {"", "\n"},
	"screens changed over long lines":   {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100), "\x1b[?1049h\x1b[?1049l"},
	"screens changed over blank lines":  {strings.Repeat(strings.Repeat(" ", maxLine-8)+"\r\n", 100), "\x1b[?47h\x1b[?47l"},
	"screens changed far down":          {"\x1b[200;1H", "\x1b[?47h\x1b[?47l"},
	"a screen of blanks cleared":        {"\x1b[200;1H", strings.Repeat(" ", 100) + "\x1b[2J"},
	"cleared far down":                  {"\x1b[200;1H", "\x1b[2J"},
	"cleared with a character":          {"\x1b[200;1H", "x\x1b[2J"},
	"reset":                             {"\x1b[200;1H", "\x1bc"},
	"reset far down":                    {"", "\x1b[200;1H\x1bc"},
	"a long line erased to the left":    {strings.Repeat("x", maxLine-8), "\x1b[1K"},
	"a screen erased to the top":        {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100), "\x1b[1J"},
	"a long line deleted in parts":      {"", strings.Repeat("x", maxLine-8) + "\r" + strings.Repeat("\x1b[P", maxLine-8)},
	"characters inserted":               {"", "x\r\x1b[500@"},
	"characters inserted in wide ones":  {"漢漢漢漢漢漢\r\x1b[C", "\x1b[@"},
	"characters erased":                 {strings.Repeat("x", maxLine-8) + "\r", "\x1b[500X"},
	"characters repeated":               {"", "x\x1b[500b\r"},
	"wide characters repeated":          {"", "漢\x1b[500b\r"},
	"marks repeated":                    {"", "\u0301\x1b[500b\r"},
	"far columns":                       {"", "\x1b[500Cx\r\n"},
	"far columns on one line":           {"", "\x1b[500Cx\r"},
	"scrolled up":                       {"\x1b[200;1H", "\x1b[500S"},
	"scrolled up over long lines":       {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100), "\x1b[S"},
	"scrolled down":                     {"\x1b[200;1H", "\x1b[500T"},
	"scrolled by a line":                {"\x1b[2;200r\x1b[200;1H", "\n"},
	"lines inserted":                    {"\x1b[200;1H\x1b[H", "\x1b[500L"},
	"lines deleted":                     {"\x1b[200;1H\x1b[H", "\x1b[500M"},
	"reverse line feeds":                {"\x1b[200;1H\x1b[H", "\x1bM"},
	"up with more than can be kept":     {strings.Repeat(strings.Repeat("x", maxLine-8)+"\r\n", 100) + "\x1b[500A", "\x1b[A"},
	"regions":                           {"", "\x1b[1;200r\x1b[1;199r"},
	"a sequence that does not end":      {"\x1b[", "1;"},
	"a title that does not end":         {"\x1b]", "1;"},
	"modes":                             {"", "\x1b[?;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;h"},
	"the beginnings of characters":      {"", "\xe2\x9c"},
	"tabs":                              {"", "\t\t\t\t\t\t\t\t\r"},
	"a line that does not end":          {"", "x"},
	"a line that does not end, in back": {strings.Repeat("x", maxLine-8), "\b\b\bxxx"},
}

// narrowPrefix begins the names of those that are printed on the smallest terminal.
const narrowPrefix = "narrow: "

func init() {
	for _, name := range []string{"plain text", "wide characters", "marks", "line feeds", "characters repeated", "far columns", "scrolled up", "tabs", "a line that does not end", "screens changed far down"} {
		costlyStreams[narrowPrefix+name] = costlyStreams[name]
	}
}

// TestTranscript_CostPerByteIsBounded: what a byte costs does not depend on what came before it, so that a
// log of any content can be read to its end. What is measured is the processor's time, which
// another's load does not change.
func TestTranscript_CostPerByteIsBounded(t *testing.T) {
	const size, limit = 128 << 10, 40 * time.Microsecond // for a byte; with the race detector the costliest takes a third of it
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
