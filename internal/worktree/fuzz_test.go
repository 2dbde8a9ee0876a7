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
	want := []indexEntry{
		{
			path: "a\tb", mode: "100644", blob: "12", ctime: timestamp{1, 2}, mtime: timestamp{3, 4},
			inode: 6, size: 9, intended: true,
		},
		{path: "c\n  d", mode: "160000", blob: "34", sparse: true},
	}
	output := "H 100644 12 0\ta\tb\x00" + debug +
		"S 160000 34 0\tc\n  d\x00  unknown: 1\nH 100644 1 0\t../out\x00" + debug
	assert.Equal(t, want, slices.Collect(parseIndex(output)))
	assert.Equal(t, "one; two", errorMessage("warning: x\nfatal: one\nhint: do\nerror: two\n"))
	assert.Equal(t, "warning: x", errorMessage("\nwarning: x\nhint: do\n"))
}

// FuzzIndex checks that no path is outside the worktree, and that every file that git lists is
// returned.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{
		"H 100644 11 0\tx\x00  ctime: 1:1\n  mtime: 1:1\n  dev: 1\tino: 1\n  uid: 0\tgid: 0\n" +
			"  size: 1\tflags: 0\nS 160000 12 0\ta b\x00",
		"h 100644 12 0\t/etc/passwd\x00", "s 100644 1 0\t\x00", "H 1 1 1\t\x00  \x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		n := 0
		for e := range parseIndex(out) {
			n++
			require.True(t, filepath.IsLocal(e.path), "%q", e.path)
			require.NotContains(t, e.path, "\x00")
		}
		require.LessOrEqual(t, n, strings.Count(out, "\x00"))
	})
}

// FuzzErrorMessage checks that git's standard error is reduced to one line of bounded length.
func FuzzErrorMessage(f *testing.F) {
	for _, seed := range []string{
		"fatal: not a git repository\n", "hint: x\nerror: a\nerror: b\n", "\xff\r\n", strings.Repeat("fatal: x\n", 200),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stderr string) {
		text := errorMessage(stderr)
		require.LessOrEqual(t, len(text), maxMessage+len("…"))
		require.NotContains(t, text, "\n")
		require.True(t, utf8.ValidString(text))
	})
}

// FuzzMarker checks that a marker file is accepted only at its own path, and that it is parsed as
// it was written.
func FuzzMarker(f *testing.F) {
	for _, seed := range []string{
		`{"repository":"/r/.git","path":"/w/shop","branch":"corral/shop","made":true,"base":"1234"}`,
		`{"path":"/w/other"}`, `{}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := parseMarker(text, "/w/shop")
		if err != nil {
			return
		}
		require.Equal(t, "/w/shop", w.Path)
		again, err := json.Marshal(w)
		require.NoError(t, err)
		read, err := parseMarker(again, "/w/shop")
		require.NoError(t, err)
		require.Equal(t, w, read)
	})
}
