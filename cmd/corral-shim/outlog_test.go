package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newLog(t *testing.T, limit int64) (*outputLog, string) {
	t.Helper()
	dir := t.TempDir()
	l, err := openLog(dir, limit)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(l.fd), unix.Close(l.dir) })
	return l, dir
}

// kept reads both files of a log, and holds what is always true of them.
func kept(t *testing.T, dir string, limit int) (older, newer string) {
	t.Helper()
	for name, text := range map[string]*string{oldName: &older, logName: &newer} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			st, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), st.Mode())
		}
		*text = string(b)
	}
	assert.LessOrEqual(t, len(older)+len(newer), limit)
	return older, newer
}

func TestLogRotatesAtLineEnds(t *testing.T) {
	const limit = 64 << 10
	for _, longest := range []int{10, 200, 5000} {
		t.Run(fmt.Sprintf("lines of up to %d bytes", longest), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(longest)))
			l, dir := newLog(t, limit)
			var all bytes.Buffer
			for all.Len() < 10*limit {
				line := strings.Repeat("x", r.IntN(longest)) + "\n"
				all.WriteString(line)
			}
			for rest := all.Bytes(); len(rest) > 0; {
				n := min(1+r.IntN(9000), len(rest))
				l.write(rest[:n])
				rest = rest[n:]
				older, newer := kept(t, dir, limit)
				if older != "" {
					require.True(t, strings.HasSuffix(older, "\n"), "the older file ends with a line")
				}
				require.True(t, bytes.HasSuffix(all.Bytes()[:all.Len()-len(rest)], []byte(older+newer)), "nothing is missing in between")
			}
			older, newer := kept(t, dir, limit)
			assert.Greater(t, len(older)+len(newer), limit/4)
		})
	}
}

func TestLogCutsALineThatNeverEnds(t *testing.T) {
	const limit = 32 << 10
	l, dir := newLog(t, limit)
	piece := []byte(strings.Repeat("y", 1000))
	for range 200 {
		l.write(piece)
		kept(t, dir, limit)
	}
	l.write(bytes.Repeat([]byte("z"), 5*limit))
	older, newer := kept(t, dir, limit)
	assert.Greater(t, len(older)+len(newer), limit/3)
}

func TestLogIsAppendedAcrossRuns(t *testing.T) {
	l, dir := newLog(t, 64<<10)
	l.write([]byte("first run\n"))
	again, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	again.write([]byte("second run\n"))
	_, newer := kept(t, dir, 64<<10)
	assert.Equal(t, "first run\nsecond run\n", newer)
}

func TestLogShrinksWithItsLimit(t *testing.T) {
	l, dir := newLog(t, 1<<20)
	for i := range 30_000 {
		l.write(fmt.Appendf(nil, "line number %d of many\n", i))
	}
	again, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	again.write([]byte("end\n"))
	older, newer := kept(t, dir, 64<<10)
	assert.True(t, strings.HasSuffix(older+newer, "line number 29999 of many\nend\n"))
	assert.True(t, strings.HasPrefix(older, "line number"))
}

func TestLogSaysWhatIsMissing(t *testing.T) {
	l, dir := newLog(t, 64<<10)
	l.write([]byte("before\n"))
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	good := l.fd
	l.fd = full
	l.write([]byte("12345"))
	l.write([]byte("67890\n"))
	l.fd = good
	l.write([]byte("after\n"))
	_, newer := kept(t, dir, 64<<10)
	assert.Equal(t, "before\n\r\n[corral: 11 bytes of output are missing here: no space left on device]\r\nafter\n", newer)
	require.NoError(t, unix.Close(full))
}

func TestLogThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, logName), 0o700))
	l, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	l.write([]byte("lost\n"))
	require.NoError(t, os.Remove(filepath.Join(dir, logName)))
	l.write([]byte("kept\n"))
	_, newer := kept(t, dir, 64<<10)
	assert.Equal(t, "\r\n[corral: 5 bytes of output are missing here: is a directory]\r\nkept\n", newer)
}

func TestLogRotatesAtFullSpeed(t *testing.T) {
	h := newHome(t, "sh", "-c", "seq 1000000")
	h.spec.LogMax = 256 << 10
	s := h.show()
	require.Equal(t, 0, s.ends())
	older, newer := kept(t, h.spec.StateDir, 256<<10)
	assert.True(t, strings.HasSuffix(newer, "1000000\r\n"))
	assert.True(t, strings.HasSuffix(older, "\r\n"))
	lines := strings.Split(strings.TrimSuffix(older+newer, "\r\n"), "\r\n")
	for i, line := range lines {
		require.Equal(t, fmt.Sprint(1000000-len(lines)+1+i), line)
	}
}
