package worktree

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatGitPrintsIsRead(t *testing.T) {
	var l Losses
	countStatus(" M a\x00?? new dir/\x00!! bin/\x00 D gone\x00D  staged\x00UU both\x00AD x\x00", &l)
	assert.Equal(t, Losses{Changes: 3, Untracked: 1, Ignored: 1, Deleted: 2}, l)
	assert.Equal(t, []string{"lib", "a\tb"}, gitlinks("100644 1234 0\ta\x00160000 1234 1\tlib\x00160000 1234 2\tlib\x00160000 1234 0\ta\tb\x00160000 1 0\t../out\x00"))
	assert.Equal(t, []hiddenFile{{"12", "a b", false}, {"34", "c", true}}, hiddenFiles("H 100644 11 0\tx\x00h 100644 12 0\ta b\x00S 100755 34 0\tc\x00h 120000 56 0\tlink\x00"))
	assert.Equal(t, "one; two", complaint("warning: x\nfatal: one\nhint: do\nerror: two\n"))
	assert.Equal(t, "warning: x", complaint("\nwarning: x\nhint: do\n"))
}

// FuzzStatus holds that each entry counts once, whatever it says: nothing is overlooked.
func FuzzStatus(f *testing.F) {
	for _, seed := range []string{" M a\x00?? new\x00!! bin/\x00", "R  to\x00", "\x00\x00", "?? \n\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		var l Losses
		countStatus(out, &l)
		entries := 0
		for entry := range strings.SplitSeq(out, "\x00") {
			if len(entry) >= 3 {
				entries++
			}
		}
		require.Equal(t, entries, l.Changes+l.Deleted+l.Untracked+l.Ignored)
		require.Equal(t, entries > l.Ignored, l.Any())
	})
}

// FuzzGitlinks holds that no path leads out of the worktree: git is run there.
func FuzzGitlinks(f *testing.F) {
	for _, seed := range []string{"160000 1234 0\tlib\x00", "100644 1234 0\ta\x00", "160000 1234 0\t../../etc\x00", "160000 \t/\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		for _, path := range gitlinks(out) {
			require.True(t, strings.HasPrefix(filepath.Join("/root", path)+"/", "/root/"), "%q", path)
		}
	})
}

// FuzzHiddenFiles holds that no path leads out of the worktree, and that only what git was told not to look at is in question.
func FuzzHiddenFiles(f *testing.F) {
	for _, seed := range []string{"H 100644 11 0\tx\x00h 100644 12 0\ta b\x00S 100755 34 0\tc\x00", "h 100644 12 0\t/etc/passwd\x00", "s 100644 1 0\t\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		for _, file := range hiddenFiles(out) {
			require.True(t, filepath.IsLocal(file.path), "%q", file.path)
			require.NotContains(t, file.path+file.blob, "\x00")
		}
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
