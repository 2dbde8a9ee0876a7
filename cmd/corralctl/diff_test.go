package main

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDiffWriter_JoinsPieces: git's output arrives in pieces that end anywhere.
func TestDiffWriter_JoinsPieces(t *testing.T) {
	var shown bytes.Buffer
	c := &ctl{out: bufio.NewWriter(&shown), outTTY: &terminal{width: 80, height: 24}}
	w := &diffWriter{c: c, started: true}
	for _, piece := range []string{"+a", "b", "\x1b", "c\n-d\n+e", "f\n", "\n"} {
		n, err := w.Write([]byte(piece))
		require.NoError(t, err)
		assert.Equal(t, len(piece), n)
	}
	require.NoError(t, c.out.Flush())
	assert.NotContains(t, shown.String(), "\x1bc")
	assert.Regexp(t, `^(\x1b\[1m)?\+ab.+c(\x1b\[0?m)?\n(\x1b\[1m)?-d(\x1b\[0?m)?\n(\x1b\[1m)?\+ef(\x1b\[0?m)?\n`,
		shown.String())
}
