package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIsRunning_DoesNotAllocate: it is called every few milliseconds while a text is delivered.
func TestIsRunning_DoesNotAllocate(t *testing.T) {
	const otherGroup = -1
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if isRunning(os.Getpid(), otherGroup) || isRunning(1<<22+1, 0) {
			t.Error("another process group, or no process")
		}
	}))
}

func TestParseTMUX_ExtractsFields(t *testing.T) {
	socket, pid, ok := parseTMUX("/run/user/1000/a,b/tmux,42,0")
	assert.True(t, ok)
	assert.Equal(t, "/run/user/1000/a,b/tmux", socket)
	assert.Equal(t, 42, pid)
}

// FuzzParseTMUX checks that a value of $TMUX is accepted only if it has all three parts.
func FuzzParseTMUX(f *testing.F) {
	for _, seed := range []string{"/run/user/1000/a,b/tmux,42,0", ",,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if socket, pid, ok := parseTMUX(text); ok {
			require.Greater(t, pid, 1)
			require.True(t, strings.HasPrefix(text, socket+","))
		}
	})
}
