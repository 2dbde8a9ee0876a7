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

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/termsizes"
)

func newLog(t *testing.T, limit int64) (*outputLog, string) {
	t.Helper()
	dir := t.TempDir()
	l, err := openLog(dir, limit)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(l.fd), unix.Close(l.dir) })
	return l, dir
}

// readLogFiles reads both files of a log and checks the invariants of their modes and sizes.
func readLogFiles(t *testing.T, dir string, limit int) (older, newer string) {
	t.Helper()
	for name, text := range map[string]*string{shimwire.OlderLogName: &older, shimwire.LogName: &newer} {
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

func TestOutputLog_RotatesAtLineEnds(t *testing.T) {
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
				older, newer := readLogFiles(t, dir, limit)
				if older != "" {
					require.True(t, strings.HasSuffix(older, "\n"), "the older file ends with a line")
				}
				require.True(t, bytes.HasSuffix(all.Bytes()[:all.Len()-len(rest)], []byte(older+newer)), "no bytes are missing")
			}
			older, newer := readLogFiles(t, dir, limit)
			assert.Greater(t, len(older)+len(newer), limit/4)
		})
	}
}

func TestOutputLog_SplitsEndlessLines(t *testing.T) {
	const limit = 32 << 10
	l, dir := newLog(t, limit)
	piece := []byte(strings.Repeat("y", 1000))
	for range 200 {
		l.write(piece)
		readLogFiles(t, dir, limit)
	}
	l.write(bytes.Repeat([]byte("z"), 5*limit))
	older, newer := readLogFiles(t, dir, limit)
	assert.Greater(t, len(older)+len(newer), limit/3)
}

func TestOutputLog_IsAppendedAcrossRuns(t *testing.T) {
	l, dir := newLog(t, 64<<10)
	l.write([]byte("first run\n"))
	again, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	again.write([]byte("second run\n"))
	_, newer := readLogFiles(t, dir, 64<<10)
	assert.Equal(t, "first run\nsecond run\n", newer)
}

func TestOutputLog_ShrinksToALowerLimit(t *testing.T) {
	l, dir := newLog(t, 1<<20)
	for i := range 30_000 {
		l.write(fmt.Appendf(nil, "line number %d of many\n", i))
	}
	again, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	again.write([]byte("end\n"))
	older, newer := readLogFiles(t, dir, 64<<10)
	assert.True(t, strings.HasSuffix(older+newer, "line number 29999 of many\nend\n"))
	assert.True(t, strings.HasPrefix(older, "line number"))
}

func TestOutputLog_MarksMissingBytes(t *testing.T) {
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
	_, newer := readLogFiles(t, dir, 64<<10)
	assert.Equal(t, "before\n\r\n[corral: 11 bytes of output are missing here: no space left on device]\r\nafter\n", newer)
	require.NoError(t, unix.Close(full))
}

func TestOutputLog_RetriesAfterOpenErrors(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, shimwire.LogName), 0o700))
	l, err := openLog(dir, 64<<10)
	require.NoError(t, err)
	l.write([]byte("lost\n"))
	require.NoError(t, os.Remove(filepath.Join(dir, shimwire.LogName)))
	l.write([]byte("kept\n"))
	_, newer := readLogFiles(t, dir, 64<<10)
	assert.Equal(t, "\r\n[corral: 5 bytes of output are missing here: is a directory]\r\nkept\n", newer)
}

// TestOutputLog_SurvivesRemoval checks that the log continues in a new file.
func TestOutputLog_SurvivesRemoval(t *testing.T) {
	const limit = 16 << 10
	line := []byte(strings.Repeat("x", 999) + "\n")
	l, dir := newLog(t, limit)
	path := filepath.Join(dir, shimwire.LogName)
	l.sizes.setSize(&unix.Winsize{Col: 80, Row: 24})
	l.write([]byte("gone\n"))

	require.NoError(t, os.Remove(path))
	l.write([]byte("removed\n"))
	_, newer := readLogFiles(t, dir, limit)
	assert.Equal(t, "removed\n", newer)

	require.NoError(t, os.Rename(path, filepath.Join(dir, "mine")))
	for range 6 {
		l.write(line)
	}
	l.write([]byte("moved away\n"))
	_, newer = readLogFiles(t, dir, limit)
	assert.Equal(t, "moved away\n", newer, "after the moved file was full")
	b, err := os.ReadFile(filepath.Join(dir, termsizes.FileName))
	require.NoError(t, err)
	assert.Equal(t, "6013\n0 80 24\n", string(b))

	require.NoError(t, os.RemoveAll(dir))
	l.write([]byte("lost\n"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	l.write([]byte("directory and all\n"))
	_, newer = readLogFiles(t, dir, limit)
	assert.Equal(t, "\r\n[corral: 5 bytes of output are missing here: no such file or directory]\r\n"+
		"directory and all\n", newer)
	b, err = os.ReadFile(filepath.Join(dir, termsizes.FileName))
	require.NoError(t, err)
	assert.Equal(t, "0\n75 80 24\n", string(b))
}

func TestOutputLog_RotatesUnderLoad(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "seq 1000000")
	ts.spec.LogMax = 256 << 10
	s := ts.startShim()
	require.Equal(t, 0, s.wait())
	older, newer := readLogFiles(t, ts.spec.StateDir, 256<<10)
	assert.True(t, strings.HasSuffix(newer, "1000000\r\n"))
	assert.True(t, strings.HasSuffix(older, "\r\n"))
	lines := strings.Split(strings.TrimSuffix(older+newer, "\r\n"), "\r\n")
	for i, line := range lines {
		require.Equal(t, fmt.Sprint(1000000-len(lines)+1+i), line)
	}
}

// TestOutputLog_RecordsTerminalSizes covers rotation and the following run.
func TestOutputLog_RecordsTerminalSizes(t *testing.T) {
	l, dir := newLog(t, 16<<10) // a file is rotated after the line that exceeds 5,952 bytes
	sizes := func() string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, termsizes.FileName))
		require.NoError(t, err)
		return string(b)
	}
	setSize := func(columns, rows uint16) { l.sizes.setSize(&unix.Winsize{Col: columns, Row: rows}) }
	line := []byte(strings.Repeat("x", 999) + "\n")
	setSize(80, 24)
	assert.Equal(t, "0\n", sizes(), "no output at this size yet")
	l.write(line)
	assert.Equal(t, "0\n0 80 24\n", sizes())
	setSize(90, 24)
	setSize(120, 40)
	l.write(line)
	setSize(100, 40)
	setSize(120, 40)
	l.write(line)
	assert.Equal(t, "0\n0 80 24\n1000 120 40\n", sizes(), "sizes without output are not recorded")
	for range 4 {
		l.write(line)
	}
	assert.Equal(t, "0\n6000\n0 80 24\n1000 120 40\n", sizes())
	setSize(60, 20)
	for range 7 {
		l.write(line)
	}
	assert.Equal(t, "6000\n12000\n1000 120 40\n7000 60 20\n", sizes(),
		"of removed output only the size that is still valid is kept")
	older, newer := readLogFiles(t, dir, 16<<10)
	assert.Len(t, older, 6000)
	assert.Len(t, newer, 2000)

	again := func() {
		t.Helper()
		_, _ = unix.Close(l.fd), unix.Close(l.dir)
		var err error
		l, err = openLog(dir, 16<<10)
		require.NoError(t, err)
		setSize(60, 20)
	}
	again()
	l.write(line)
	assert.Equal(t, "6000\n12000\n1000 120 40\n7000 60 20\n", sizes())
	setSize(61, 20)
	l.write(line)
	assert.Equal(t, "6000\n12000\n1000 120 40\n7000 60 20\n15000 61 20\n", sizes())

	t.Run("killed after the log was renamed", func(t *testing.T) {
		require.NoError(t, os.Rename(filepath.Join(dir, shimwire.LogName), filepath.Join(dir, shimwire.OlderLogName)))
		again()
		l.write(line)
		assert.Equal(t, "12000\n16000\n7000 60 20\n15000 61 20\n16000 60 20\n", sizes())
	})
	t.Run("a lower limit removes the first lines", func(t *testing.T) {
		for range 5 {
			l.write(line)
		}
		l.hardLimit, l.softLimit = 4500, 4000
		older, newer := l.truncateStart(shimwire.OlderLogName), l.truncateStart(shimwire.LogName)
		assert.Equal(t, []int64{2000, 0}, []int64{older, newer})
	})
	t.Run("a record of other files is ignored", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, shimwire.OlderLogName), line, 0o600))
		again()
		assert.Equal(t, "0\n1000\n", sizes())
		l.write(line)
		assert.Equal(t, "0\n1000\n1000 60 20\n", sizes())
	})
	t.Run("a FIFO with the temporary name is not opened", func(t *testing.T) {
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, newSizesName), 0o600))
		setSize(11, 11)
		l.write(line)
		assert.Contains(t, sizes(), " 11 11\n")
	})
	t.Run("the record is removed if it cannot be written", func(t *testing.T) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, newSizesName), 0o700))
		setSize(10, 10)
		l.write(line)
		assert.NoFileExists(t, filepath.Join(dir, termsizes.FileName))
	})
}
