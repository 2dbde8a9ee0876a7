package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLastLinesOfALog(t *testing.T) {
	for _, row := range []struct {
		lines int
		want  string
	}{{0, ""}, {1, "four"}, {2, "three\nfour"}, {9, "one\ntwo\nthree\nfour"}, {-1, "one\ntwo\nthree\nfour"}} {
		var out bytes.Buffer
		sink := (&logsOptions{lines: row.lines}).sink(&out)
		for _, part := range []string{"one\r\nt", "wo\r\nthr\x1b[1", "mee\r\n", "four"} {
			_, err := sink.Write([]byte(part))
			require.NoError(t, err)
		}
		require.NoError(t, sink.Close())
		assert.Equal(t, row.want, out.String(), "%d lines", row.lines)
	}
}

// TestWhatWasPrintedBeforeTheLogWasBegun is part of it.
func TestWhatWasPrintedBeforeTheLogWasBegun(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	require.NoError(t, os.WriteFile(path, []byte("new\n"), 0o600))
	log, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	var out bytes.Buffer
	require.NoError(t, copyBefore(&out, path+".1", log), "there is none")
	require.NoError(t, os.WriteFile(path+".1", []byte("old\n"), 0o600))
	require.NoError(t, copyBefore(&out, path+".1", log))
	assert.Equal(t, "old\n", out.String())
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, copyBefore(&out, path+".1", log), "it was rotated since")
	assert.Equal(t, "old\n", out.String())
}

func TestALogIsFollowedThroughRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	c, output := capture(t)
	f := &follower{path: path, out: c}
	defer f.close()
	require.NoError(t, f.begin(&logsOptions{lines: 2}), "there is no log yet")

	write("one\r\ntwo\r\nthree\r\n")
	f = &follower{path: path, out: c}
	require.NoError(t, f.begin(&logsOptions{lines: 2}))
	assert.Equal(t, "two\nthree\n", output())

	write("four\r\n")
	require.NoError(t, f.read())
	write("five\r\n")
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, f.read(), "between the old and the new one")
	write("six\r\n")
	require.NoError(t, f.read())
	write("seven\r\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\n", output())

	require.NoError(t, os.Truncate(path, 0))
	write("eight\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\neight\n", output())
}

func TestShortOutputIsNotPaged(t *testing.T) {
	var shown bytes.Buffer
	p := &pager{terminal: &shown, program: "false", room: 3}
	_, err := p.Write([]byte("one\ntwo\nthree\n"))
	require.NoError(t, err)
	require.NoError(t, p.close())
	assert.Equal(t, "one\ntwo\nthree\n", shown.String())
}
