package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/logtimes"
	"github.com/corrald/corral/internal/termsizes"
)

// readTimes returns the recorded times, older file first.
func readTimes(dir string) logtimes.Entries {
	older, _ := os.ReadFile(filepath.Join(dir, logtimes.OlderFileName))
	newer, _ := os.ReadFile(filepath.Join(dir, logtimes.FileName))
	return logtimes.Parse(older, newer)
}

func offsets(entries logtimes.Entries) (all []int64) {
	for _, entry := range entries {
		all = append(all, entry.Offset)
	}
	return all
}

func TestLogTimes_OncePerSecondOfOutput(t *testing.T) {
	l, dir := newLog(t, 64<<10)
	began := time.Now().Unix()
	write := func(text string, seconds int64) {
		l.write([]byte(text))
		l.times.last -= seconds // as if the next output came later
	}
	write("one\r\n", 1)
	write("two\r\n", 0)
	write("three\r\n", 2)
	write("four\r\n", 0)
	times := readTimes(dir)
	assert.Subset(t, offsets(times), []int64{0, 5, 17})
	for _, entry := range times {
		assert.GreaterOrEqual(t, entry.Time, began)
		assert.LessOrEqual(t, entry.Time, time.Now().Unix())
	}
}

// Offsets count all bytes ever logged, so that entries stay valid when the log is rotated.
func TestLogTimes_AreRotatedWithTheLog(t *testing.T) {
	const limit = 64 << 10
	l, dir := newLog(t, limit)
	line := bytes.Repeat([]byte("x"), 999)
	line = append(line, '\n')
	for range 200 {
		l.times.last = 0
		l.write(line)
	}
	times := readTimes(dir)
	older, has := l.sizes.sizes.OlderStart()
	require.True(t, has)
	assert.Equal(t, older, times[0].Offset, "entries of discarded output are discarded")
	assert.Equal(t, int64(199*1000), times[len(times)-1].Offset)

	require.NoError(t, os.Remove(filepath.Join(dir, termsizes.FileName)))
	again, err := openLog(dir, limit)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(again.fd), unix.Close(again.dir) })
	assert.Empty(t, readTimes(dir), "they do not belong to the offsets that begin anew")
}

func TestLogTimes_SizeIsBoundedByTheLog(t *testing.T) {
	l, dir := newLog(t, 1<<20)
	for range 10000 {
		l.times.last = 0
		l.write([]byte("x"))
	}
	info, err := os.Stat(filepath.Join(dir, logtimes.FileName))
	require.NoError(t, err)
	assert.Less(t, info.Size(), logtimes.MaxSize(l.size)+logtimes.MaxEntry)
	assert.Greater(t, info.Size(), logtimes.MaxSize(0))
}

// What is at the path may be anything: the log does not depend on it.
func TestLogTimes_OtherFilesAtThePath(t *testing.T) {
	l, dir := newLog(t, 64<<10)
	path := filepath.Join(dir, logtimes.FileName)
	require.NoError(t, unix.Mkfifo(path, 0o600))
	l.write([]byte("one\n"))
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/dev/null", path))
	l.times.last = 0
	l.write([]byte("two\n"))
	_, newer := readLogFiles(t, dir, 64<<10)
	assert.Equal(t, "one\ntwo\n", newer)
}
