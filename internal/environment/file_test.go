package environment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseFile(t *testing.T) {
	for _, row := range []struct {
		text string
		want []string
		line int
	}{
		{"", nil, 0},
		{"A=1\nB=two words  \n", []string{"A=1", "B=two words"}, 0},
		{"# a comment\n; another\n\n  A=1", []string{"A=1"}, 0},
		{"A=\nB=", []string{"A=", "B="}, 0},
		{`A="two  words "` + "\nB='it is \"so\"'", []string{"A=two  words ", `B=it is "so"`}, 0},
		{"KEY=\"-----BEGIN\nline\n-----END\"\nB=1", []string{"KEY=-----BEGIN\nline\n-----END", "B=1"}, 0},
		{`A="a\"b\$c\\d\e"`, []string{`A=a"b$c\d\e`}, 0},
		{`A=a\ b\"c`, []string{`A=a b"c`}, 0},
		{"A=a\\\nb\nB=1", []string{"A=ab", "B=1"}, 0},
		{"A=x=y#z", []string{"A=x=y#z"}, 0},
		{"A=1\r\nB=2\r\n", []string{"A=1", "B=2"}, 0},
		{"A = 1", []string{"A=1"}, 0},
		{"A=1\nno assignment\nB=2", []string{"A=1"}, 2},
		{"\nexport A=1", nil, 2},
		{"A=\"never closed\nB=1", nil, 1},
		{"A=1\\", nil, 1},
		{"A=\x00", nil, 1},
	} {
		got, line := ParseFile(row.text)
		assert.Equal(t, row.want, got, "%q", row.text)
		assert.Equal(t, row.line, line, "%q", row.text)
	}
}

func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	one := func(path string) []SourceFile { return []SourceFile{{Path: path}} }
	got, err := ReadFiles([]SourceFile{
		{Path: path("a", "A=1")}, {Path: dir + "/none", Optional: true}, {Path: path("b", "B=2"), Optional: true},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"A=1", "B=2"}, got)
	_, err = ReadFiles(one(dir + "/none"))
	require.EqualError(t, err, "cannot read the environment file: open "+dir+"/none: no such file or directory")
	_, err = ReadFiles(one(path("c", "A=1\nsecret")))
	require.EqualError(t, err, "cannot use the environment file "+dir+"/c: line 2 is not NAME=VALUE")
	_, err = ReadFiles(one(path("d", strings.Repeat("#", 1<<20+1))))
	assert.ErrorContains(t, err, "is larger than")
}

// TestReadFiles_Private: with secrets of an account in it, a file that others could read is not
// used, and the error contains the command that corrects this. The names of the paths are hostile.
func TestReadFiles_Private(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte("KEY=$(touch pwned) `id`\n"), 0o600))
		require.NoError(t, os.Chmod(p, mode))
		return p
	}
	link := func(to string) string {
		p := to + ".link"
		require.NoError(t, os.Symlink(to, p))
		return p
	}
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	group, quoted := file("group.env", 0o640), file("it's $(id).env", 0o604)
	for _, row := range []struct {
		what, path, want string // want is the error, "" for none
	}{
		{"mode 0600", file("a.env", 0o600), ""},
		{"mode 0400", file("b.env", 0o400), ""},
		{"a link to one of mode 0600", link(file("c.env", 0o600)), ""},
		{"a missing file", dir + "/none.env", ""},
		{"readable by the group", group, "cannot use the environment file: " + group +
			" is a file of mode 0640, expected a file that only this user can access; run: chmod 600 " + group},
		{"a link to a file of mode 0644", link(file("d.env", 0o644)), "is a file of mode 0644"},
		{"writable by others", file("e.env", 0o602), "is a file of mode 0602"},
		{"a name that a shell would execute", quoted, `run: chmod 600 '` + dir + `/it'\''s $(id).env'`},
		{"a FIFO", fifo, "is a FIFO, expected a regular file"},
	} {
		t.Run(row.what, func(t *testing.T) {
			entries, err := ReadFiles([]SourceFile{{Path: row.path, Optional: true, Private: true}})
			if row.want == "" {
				require.NoError(t, err)
				if row.what != "a missing file" {
					assert.Equal(t, []string{"KEY=$(touch pwned) `id`"}, entries)
				}
				return
			}
			require.ErrorContains(t, err, row.want)
			require.ErrorAs(t, err, new(*FileError))
			assert.Nil(t, entries)
		})
	}
}

// FuzzParseFile checks that the result is valid for execve, and that a quoted value is parsed back
// unchanged.
func FuzzParseFile(f *testing.F) {
	f.Add("A=1\n# x\nB='2'", "value")
	f.Add(`A="\`, "\"$\\`\n'")
	f.Fuzz(func(t *testing.T, text, value string) {
		entries, _ := ParseFile(text)
		for _, entry := range entries {
			name, value, ok := strings.Cut(entry, "=")
			require.True(t, ok && ValidName(name) && !strings.ContainsRune(value, 0), "%q", entry)
		}
		if strings.ContainsRune(value, 0) {
			return
		}
		quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "`", "\\`", `$`, `\$`).Replace(value) + `"`
		got, line := ParseFile("A=" + quoted + "\nB=1")
		require.Zero(t, line)
		require.Equal(t, []string{"A=" + value, "B=1"}, got)
	})
}
