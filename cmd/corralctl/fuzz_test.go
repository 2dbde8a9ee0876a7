package main

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// FuzzSignal checks that a text is accepted only as the number of a signal.
func FuzzSignal(f *testing.F) {
	seeds := []string{
		"9", "KILL", "SIGTERM", "rtmin+3", "SIGRTMIN", "RTMIN+31", "0", "-1", "65", "SIG", "RTMIN+-1",
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		signal, err := parseSignal(text)
		if err != nil {
			assert.Contains(t, err.Error(), "invalid signal")
			return
		}
		assert.GreaterOrEqual(t, signal, unix.Signal(1))
		assert.LessOrEqual(t, signal, unix.Signal(64))
	})
}

// FuzzLabels checks that a label's key is before the first equals sign, and its value after it.
func FuzzLabels(f *testing.F) {
	for _, seed := range []string{"a=b", "a=", "=b", "a", "a=b=c", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		labels, err := parseLabels([]string{text})
		if err != nil {
			assert.True(t, !strings.Contains(text, "=") || strings.HasPrefix(text, "="))
			return
		}
		for key, value := range labels {
			assert.Equal(t, text, key+"="+value)
		}
	})
}

// FuzzMatch checks that a word names only sessions that exist, each once, and that the full id of a
// session always names it.
func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"shop", "sh", "s*", "[a-", "shop-?", "*", "", "\\", "[!a]*"} {
		f.Add(seed)
	}
	ids := []string{"shop", "shop-2", "fix.auth", "a", "old"}
	var sessions []dbusapi.SessionRow
	for i, id := range ids {
		s := dbusapi.SessionRow{ID: id, State: "running"}
		if i == len(ids)-1 {
			s.State = "archived"
		}
		sessions = append(sessions, s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		found, err := match(word, sessions, false)
		if slices.Contains(ids, word) {
			require.NoError(t, err)
			assert.Equal(t, []string{word}, found)
		}
		for i, id := range found {
			assert.Contains(t, ids, id)
			assert.NotContains(t, found[:i], id)
		}
	})
}

// FuzzKeys checks that the picker reads at most one key from each byte, whatever a terminal sends.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"\x1b", "\x1b[A\x1bOB", "a\r", "\x1b[", "\x1b[200~x", "\x15\x7f\x03", "漢\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, read []byte) {
		assert.LessOrEqual(t, len(readKeys(read)), max(1, len(read)))
	})
}

// FuzzStory checks the parser of the tests' own scripts: each command is one of the lines.
func FuzzStory(f *testing.F) {
	f.Add("$ one\n> two\nout …\n[exit 3]\n# more\n$ three\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, step := range parseStory(text) {
			assert.Contains(t, text, "$ "+strings.Split(step.command, "\n")[0])
		}
	})
}

// FuzzLastLines checks that the last lines are the end of what was written, from the beginning of a
// line.
func FuzzLastLines(f *testing.F) {
	f.Add("one\ntwo\nthree", 2, 4)
	f.Fuzz(func(t *testing.T, text string, limit, cut int) {
		if limit < 0 || limit > 1000 || len(text) > 4096 || !utf8.ValidString(text) {
			return
		}
		var out strings.Builder
		last := &lastLines{out: &out, limit: limit}
		i := min(max(cut, 0), len(text))
		for _, part := range []string{text[:i], text[i:]} {
			_, err := last.Write([]byte(part))
			require.NoError(t, err)
		}
		require.NoError(t, last.Close())
		assert.True(t, strings.HasSuffix(text, out.String()))
		lines := strings.Count(out.String(), "\n")
		if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n") {
			lines++
		}
		assert.LessOrEqual(t, lines, limit)
	})
}

// FuzzDiff checks that on a terminal each line of a diff is shown as one line, in which a terminal
// acts on nothing but the diff's colours, however the diff is split into writes.
func FuzzDiff(f *testing.F) {
	for _, seed := range []string{
		"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n one\n---- a\n+\x1b[8mtwo\n\\ No newline at end of file\n",
		"@@ -1 +1 @@\n-a\n+b\n", "@@ -99999999999999999999 +1,0 @@\n\xff\u202e\n\n", "\r\x00\n",
	} {
		f.Add(seed, 7)
	}
	f.Fuzz(func(t *testing.T, diff string, cut int) {
		var out strings.Builder
		c := &ctl{out: bufio.NewWriter(&out), outTTY: &terminal{width: 80, height: 24, colour: true}}
		w := &diffWriter{c: c}
		i := min(max(cut, 0), len(diff))
		for _, part := range []string{diff[:i], diff[i:]} {
			_, err := w.Write([]byte(part))
			require.NoError(t, err)
		}
		require.NoError(t, c.out.Flush())
		assert.Equal(t, strings.Count(diff, "\n"), strings.Count(out.String(), "\n"))
		colours := strings.NewReplacer(diffOld, "", diffNew, "", diffHunk, "", wording.Bold, "", wording.Normal, "")
		text := colours.Replace(out.String())
		assert.Equal(t, wording.PrintableLines(text), text)
	})
}
