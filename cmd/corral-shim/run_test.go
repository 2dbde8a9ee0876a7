package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/safefile"
)

// TestReadSpec_RejectsAFIFO: its daemon would wait for it in vain.
func TestReadSpec_RejectsAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := readSpec(path)
	require.ErrorIs(t, err, safefile.ErrNotRegular)
}
