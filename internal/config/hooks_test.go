package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHooks lists executable files; of several with the same name, the first directory wins.
func TestHooks(t *testing.T) {
	own, etc := t.TempDir(), t.TempDir()
	write := func(dir, name, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, "hooks.d", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	ntfy := write(own, "ntfy", "#!/bin/sh\n", 0o755)
	write(etc, "ntfy", "#!/bin/sh\n", 0o755)
	slack := write(etc, "50-slack.py", "#!/usr/bin/python3\n", 0o755)
	write(etc, "masked", "#!/bin/sh\n", 0o755)
	write(own, "masked", "", 0o644)
	write(etc, "linked", "#!/bin/sh\n", 0o755)
	require.NoError(t, os.Symlink(os.DevNull, filepath.Join(own, "hooks.d/linked")))
	write(own, "ntfy~", "#!/bin/sh\n", 0o755)
	write(own, "ntfy.dpkg-old", "#!/bin/sh\n", 0o755)
	write(own, ".hidden", "#!/bin/sh\n", 0o755)
	text := write(own, "README", "what is here", 0o644)
	require.NoError(t, os.Mkdir(filepath.Join(own, "hooks.d/directory"), 0o755))

	hooks, warnings := Hooks([]string{own, etc, filepath.Join(own, "none")})
	assert.Equal(t, []Hook{{"50-slack.py", slack}, {"ntfy", ntfy}}, hooks)
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0].String(), "is not a regular file")
	assert.Equal(t, text+": a hook must be executable (chmod +x), ignored", warnings[1].String())
}
