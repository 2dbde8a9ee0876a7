package desktop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLookPath(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	own, foot := filepath.Join(home, ".local/bin"), filepath.Join(home, ".local/bin/foot")
	require.NoError(t, os.MkdirAll(own, 0o700))
	require.NoError(t, os.WriteFile(foot, nil, 0o700))
	e := Environment{"PATH=:.local/bin", "HOME=" + home}
	for name, want := range map[string]string{
		"foot":            foot, // not .local/bin/foot: the PATH of the user manager is not relative to this directory
		foot:              foot,
		"sh":              "/usr/bin/sh",
		own:               "",
		".local/bin/foot": "",
		"no-such-program": "",
	} {
		got, err := e.LookPath(name)
		assert.Equal(t, want, got, name)
		if want == "" {
			assert.EqualError(t, err, `"`+name+`" is not installed`)
		}
	}
}
