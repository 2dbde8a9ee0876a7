package worktree

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIndex_ParsesGitOutput(t *testing.T) {
	debug := "  ctime: 1:2\n  mtime: 3:4\n  dev: 5\tino: 6\n  uid: 7\tgid: 8\n  size: 9\tflags: 20000000\n"
	want := []indexed{
		{path: "a\tb", mode: "100644", blob: "12", ctime: stamp{1, 2}, mtime: stamp{3, 4}, inode: 6, size: 9, intended: true},
		{path: "c\n  d", mode: "160000", blob: "34", sparse: true},
	}
	assert.Equal(t, want, slices.Collect(index("H 100644 12 0\ta\tb\x00"+debug+"S 160000 34 0\tc\n  d\x00  unknown: 1\nH 100644 1 0\t../out\x00"+debug)))
	assert.Equal(t, "one; two", complaint("warning: x\nfatal: one\nhint: do\nerror: two\n"))
	assert.Equal(t, "warning: x", complaint("\nwarning: x\nhint: do\n"))
}

// FuzzIndex holds that no path leads out of the worktree, and that each file that git names is
// looked at.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{
		"H 100644 11 0\tx\x00  ctime: 1:1\n  mtime: 1:1\n  dev: 1\tino: 1\n  uid: 0\tgid: 0\n  size: 1\tflags: 0\nS 160000 12 0\ta b\x00",
		"h 100644 12 0\t/etc/passwd\x00", "s 100644 1 0\t\x00", "H 1 1 1\t\x00  \x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		n := 0
		for e := range index(out) {
			n++
			require.True(t, filepath.IsLocal(e.path), "%q", e.path)
			require.NotContains(t, e.path, "\x00")
		}
		require.LessOrEqual(t, n, strings.Count(out, "\x00"))
	})
}

// FuzzComplaint holds that what git says is told in one line of bounded length.
func FuzzComplaint(f *testing.F) {
	for _, seed := range []string{"fatal: not a git repository\n", "hint: x\nerror: a\nerror: b\n", "\xff\r\n", strings.Repeat("fatal: x\n", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		text := complaint(said)
		require.LessOrEqual(t, len(text), maxMessage+len("…"))
		require.NotContains(t, text, "\n")
		require.True(t, utf8.ValidString(text))
	})
}

// FuzzNote holds that a note is of the place that it lies at, and reads as it was written.
func FuzzNote(f *testing.F) {
	for _, seed := range []string{`{"repository":"/r/.git","path":"/w/shop","branch":"corral/shop","made":true,"base":"1234"}`, `{"path":"/w/other"}`, `{}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := parseNote(text, "/w/shop")
		if err != nil {
			return
		}
		require.Equal(t, "/w/shop", w.Path)
		again, err := json.Marshal(w)
		require.NoError(t, err)
		read, err := parseNote(again, "/w/shop")
		require.NoError(t, err)
		require.Equal(t, w, read)
	})
}
