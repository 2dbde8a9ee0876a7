package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/logtimes"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/termsizes"
)

// grep returns the lines of the log that match, each with its time in seconds.
func (w *writtenLog) grep(pattern string, last int) (found []string) {
	w.t.Helper()
	o := logsOptions{pattern: regexp.MustCompile(pattern), lines: last}
	lines, err := o.matches(w.directory, "shop", func() (*os.File, error) {
		return os.Open(filepath.Join(w.directory, shimwire.LogName))
	})
	require.NoError(w.t, err)
	for _, m := range lines {
		assert.Equal(w.t, "shop", m.Id)
		found = append(found, fmt.Sprintf("%d %s", m.Time/int64(time.Second/time.Microsecond), m.Line))
	}
	return found
}

// at records that what is written next is printed at a time, in seconds.
func (w *writtenLog) at(seconds int64) {
	w.t.Helper()
	path := filepath.Join(w.directory, logtimes.FileName)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	_, err = file.Write(logtimes.Entry{Offset: w.sizes.Start() + w.size, Time: seconds}.Append(nil))
	require.NoError(w.t, err)
	require.NoError(w.t, file.Close())
}

// The time of a line is when its last character was printed, also if the line was drawn in parts.
func TestLogsGrep_TimesOfLines(t *testing.T) {
	w := newWrittenLog(t)
	w.setColumns(20)
	w.write("before the times\r\n")
	w.at(100)
	w.write("one\r\ntwo ")
	w.at(200)
	w.write("is drawn\x1b[1Cin parts and wrapped\r\nthree\r\n")
	w.at(300)
	w.write("\x1b[Afour\x1b[K\r\n") // overwrites "three"
	w.rotate()
	w.write("five\r\n")
	w.at(400)
	w.write("\x1b[2A\x1b[2Bsix")
	assert.Equal(t, []string{"0 before the times", "100 one", "200 two is drawn in parts and wrapped", "300 four",
		"300 five", "400 six"}, w.grep("", -1))
	assert.Equal(t, []string{"200 two is drawn in parts and wrapped"}, w.grep(`drawn in\b`, -1))
	assert.Equal(t, []string{"300 five", "400 six"}, w.grep("(?i)^(FIVE|six)$", -1))
	assert.Equal(t, []string{"400 six"}, w.grep("i", 1))
	assert.Empty(t, w.grep("three", -1), "it was overwritten")
	assert.Empty(t, w.grep("i", 0))

	require.NoError(t, os.Remove(filepath.Join(w.directory, termsizes.FileName)))
	assert.Equal(t, []string{"0 one"}, w.grep("one", -1), "the offsets are not known")
}

func TestLineMatcher_RequiredText(t *testing.T) {
	for pattern, want := range map[string]string{
		"error": "error", "(?i)Error": "error", `^\s*(cannot) save+ %q`: "cannot", "a|b": "", "(x)?": "", "": "",
		"(?i)sK": "sk", "(?i)é": "", "é+": "é", "[eE]rror": "rror", "(?:abc){2}": "abc", "(?:abc){0,2}": "",
	} {
		assert.Equal(t, want, string(newLineMatcher(regexp.MustCompile(pattern)).text), pattern)
	}
}

// FuzzLineMatcher checks that a line matches if, and only if, the expression alone matches it.
func FuzzLineMatcher(f *testing.F) {
	for _, seed := range [][2]string{
		{"(?i)kelvin", "\u212aelvin"}, {"(?i)S", "\u017f"}, {"err(or)?.*save", "cannot save: error"},
		{"(a+b){2}", "aabab"}, {"(?i)É", "é"}, {"(?i:a)B", "AB"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, expression, line string) {
		pattern, err := regexp.Compile(expression)
		if err != nil || len(expression)+len(line) > 1<<10 {
			return
		}
		assert.Equal(t, pattern.MatchString(line), newLineMatcher(pattern).match([]byte(line)))
	})
}
