package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFind_FollowsExecvp(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o600, "b/tool": 0o700, "a/plain": 0o600, "own": 0o700} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, c := range []struct{ name, command, path, found, message string }{
		{"the first that can be executed", "tool", a + ":" + b, b + "/tool", ""},
		{"none that can be executed", "plain", a + ":" + b, "", `command "plain" is not executable`},
		{"relative to the workspace", "./own", "", "./own", ""},
		{"an empty entry is the workspace", "own", a + "::" + b, "./own", ""},
		{"a relative entry", "tool", "b", "b/tool", ""},
		{"nowhere", "own", a, "", `command "own" not found`},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := Find(c.command, []string{"X=1", "PATH=" + c.path}, dir)
			if c.message != "" {
				require.EqualError(t, err, c.message)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.found, found)
		})
	}
	for _, command := range []string{"own", "./own", "b/tool"} {
		_, err := Find(command, []string{"PATH=:.:b"}, "")
		require.EqualError(t, err, `command "`+command+`" not found`, "relative to an unknown directory")
	}
	found, err := Find("tool", []string{"PATH=:b:" + b}, "")
	require.NoError(t, err)
	assert.Equal(t, b+"/tool", found)
	assert.Equal(t, "/bin:/usr/bin", SearchPath([]string{"HOME=/"}))
}

func TestCheckWorkspace_RequiresADirectory(t *testing.T) {
	dir := t.TempDir()
	file, link, missing := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "missing")
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, os.Symlink(loop, loop))
	for path, want := range map[string]string{
		dir: "", link: "",
		file:        `workspace "` + file + `" is not a directory`,
		missing:     `workspace "` + missing + `" does not exist`,
		file + "/x": `cannot use workspace "` + file + `/x": not a directory`,
		loop:        `cannot use workspace "` + loop + `": too many levels of symbolic links`,
	} {
		err := CheckWorkspace(path)
		assert.Equal(t, want == "", err == nil, path)
		if err != nil {
			assert.Equal(t, want, err.Error())
		}
	}
}
