package loginshell

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShellArguments(t *testing.T) {
	for _, row := range []struct {
		shell       string
		interactive bool
		want        []string
	}{
		{"/bin/bash", true, []string{"bash", "-l", "-i", "-c", "x"}},
		{"/usr/bin/fish", false, []string{"fish", "-l", "-c", "x"}},
		{"/bin/tcsh", true, []string{"-tcsh", "-i", "-c", "x"}},
		{"/bin/csh", false, []string{"-csh", "-c", "x"}},
	} {
		assert.Equal(t, row.want, shellArguments(row.shell, row.interactive, "x"))
	}
}

func TestStartupFiles_OfShell(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{".bashrc", "my [odd] zsh/.zshrc", ".config/fish/conf.d/a.fish"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(home, name), nil, 0o600))
	}
	given := []string{"HOME=" + home, "ZDOTDIR=" + home + "/my [odd] zsh"}
	files := startupFiles(given)
	for _, name := range []string{".bashrc", "my [odd] zsh/.zshrc", ".config/fish/conf.d/a.fish"} {
		assert.Contains(t, files, filepath.Join(home, name))
	}
	before := cacheKey(given)
	assert.Equal(t, before, cacheKey([]string{given[1], given[0]}))
	assert.NotEqual(t, before, cacheKey(append(given, "X=1")))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".bashrc"), []byte("x"), 0o600))
	assert.NotEqual(t, before, cacheKey(given))
}

func TestAdded_WhenShellCannotRun(t *testing.T) {
	failing := func(context.Context, string, []string, []string) (io.ReadCloser, error) { return nil, errors.New("no") }
	for shell, want := range map[string]string{
		"/bin/bash": "cannot be started: no", "/usr/sbin/nologin": "", "/bin/false": "",
		"relative": "login shell /bin/sh",
	} {
		_, err := New(failing, "/shim").Added(t.Context(), []string{"SHELL=" + shell})
		if want == "" {
			require.NoError(t, err, shell)
		} else {
			require.ErrorContains(t, err, want, shell)
		}
	}
	_, err := New(failing, "/it's/shim").Added(t.Context(), nil)
	require.ErrorContains(t, err, "its path contains a quote")
}
