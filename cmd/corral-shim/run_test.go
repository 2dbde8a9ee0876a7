package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/safefile"
)

// A shim that blocks on a FIFO would keep its daemon waiting.
func TestReadSpec_RejectsAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := readSpec(path)
	require.ErrorIs(t, err, safefile.ErrNotRegular)
}
