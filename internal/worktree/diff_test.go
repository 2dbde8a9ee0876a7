package worktree_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/worktree"
)

// diff returns the names of the changed files below a directory, and what they were compared with.
func (p *place) diff(dir, revision string, whole bool) (names, against string) {
	p.t.Helper()
	d, err := worktree.NewDiff(p.t.Context(), p.git.Environment, p.path(dir), revision, whole)
	require.NoError(p.t, err)
	var out strings.Builder
	require.NoError(p.t, d.Write(p.t.Context(), &out, "--name-only"))
	require.NoError(p.t, d.Close())
	return strings.Join(strings.Fields(out.String()), " "), d.Against
}

func TestDiff_ComparesWithBaseBranch(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	w, _ := p.add("shop", "fix")
	p.write(w.Path+"/sub/b", "two\n")
	p.write("shop/sub/c", "three\n")
	p.write("shop/top", "three\n")
	for _, row := range []struct {
		name, dir, revision string
		whole               bool
		names, against      string
	}{
		{"a worktree", w.Path + "/sub", "", true, "sub/b", "main"},
		{"a worktree, with a revision", w.Path, "HEAD", true, "sub/b", "HEAD"},
		{"the default branch, without a remote: the last commit", "shop", "", false, "sub/c top", ""},
		{"untracked files of the workspace alone", "shop/sub", "", false, "sub/c", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			names, against := p.diff(row.dir, row.revision, row.whole)
			assert.Equal(t, row.names, names)
			assert.Equal(t, row.against, against)
		})
	}
	p.at("shop", "clone", "--quiet", ".", "../clone")
	p.write("clone/sub/a", "two\n")
	p.at("clone", "commit", "--quiet", "--all", "-m", "not pushed")
	names, against := p.diff("clone", "", false)
	assert.Equal(t, "sub/a", names, "the default branch: what is not pushed")
	assert.Equal(t, "origin/main", against)
	p.at("clone", "checkout", "--quiet", "-b", "topic")
	p.write("clone/topic", "x\n")
	names, against = p.diff("clone", "", false)
	assert.Equal(t, "topic", names, "a branch: what it has beside the default branch")
	assert.Equal(t, "main", against)
	p.at("clone", "checkout", "--quiet", "--detach", "HEAD~1")
	names, _ = p.diff("clone", "", false)
	assert.Equal(t, "topic", names, "no branch")

	_, err := worktree.NewDiff(t.Context(), p.git.Environment, p.dir, "", false)
	require.ErrorIs(t, err, worktree.ErrNoRepository)
	_, err = worktree.NewDiff(t.Context(), p.git.Environment, p.path("shop/.git"), "", false)
	require.ErrorIs(t, err, worktree.ErrNoRepository)
	for _, revision := range []string{"nonesuch", "--output=x", "-p"} {
		_, err = worktree.NewDiff(t.Context(), p.git.Environment, p.path("shop"), revision, false)
		require.ErrorIs(t, err, worktree.ErrUnknownRevision, revision)
	}
}

// TestDiff_RunsNoProgramsAndWritesNothing: no program from the repository's configuration runs, and
// no file below its directory changes.
func TestDiff_RunsNoProgramsAndWritesNothing(t *testing.T) {
	p := newPlace(t)
	p.repository("lib")
	p.repository("shop")
	p.at("shop", "submodule", "--quiet", "add", p.path("lib"), "lib")
	p.at("shop", "commit", "--quiet", "-m", "second")
	program, note := p.trap()
	p.setTraps("shop", program)
	p.at("shop", "config", "filter.a=b.clean", program)
	p.at("shop", "config", "filter.x.required", "true")
	p.at("shop", "config", "filter.x.process", program)
	p.at("shop", "config", "pager.diff", program)
	p.at("shop", "config", "core.splitIndex", "true")
	p.at("shop/lib", "config", "core.fsmonitor", program)
	p.write("shop/.gitattributes", "new* filter=a=b\n")
	p.write("shop/sub/a", "two\n")
	p.write("shop/new", "three\n")
	p.write("shop/lib/sub/a", "two\n")

	cmd := exec.Command("git", "diff", "--quiet")
	cmd.Dir, cmd.Env = p.path("shop"), p.git.Environment[:2]
	_ = cmd.Run()
	require.FileExists(t, note, "it would be run")
	require.NoError(t, os.Remove(note))

	before := p.files("shop")
	names, _ := p.diff("shop", "", false)
	assert.Equal(t, ".gitattributes new sub/a", names)
	d, err := worktree.NewDiff(t.Context(), p.git.Environment, p.path("shop"), "", false)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	var out strings.Builder
	require.NoError(t, d.Write(t.Context(), &out, "--no-color"))
	assert.Contains(t, out.String(), "-one\n+two\n")
	assert.Contains(t, out.String(), "+three\n")
	assert.Empty(t, d.Pager)
	assert.NoFileExists(t, note)
	assert.Equal(t, before, p.files("shop"))
}

// TestDiff_FindsChangesInTheSecondOfTheIndex: a file is modified in the same second in which the
// index is written, and keeps its size. git finds that by comparing the content.
func TestDiff_FindsChangesInTheSecondOfTheIndex(t *testing.T) {
	for _, untracked := range []bool{false, true} {
		p := newPlace(t)
		p.repository("shop")
		p.at("shop", "config", "core.trustctime", "false") // ctime cannot be set
		second := time.Now().Add(-time.Hour)
		modified := func(name string) { require.NoError(t, os.Chtimes(p.path(name), second, second)) }
		modified("shop/sub/a")
		p.at("shop", "update-index", "--refresh")
		p.write("shop/sub/a", "two\n")
		modified("shop/sub/a")
		modified("shop/.git/index")
		want := "sub/a"
		if untracked {
			p.write("shop/new", "three\n")
			want = "new sub/a"
		}
		names, _ := p.diff("shop", "", false)
		assert.Equal(t, want, names)
	}
}

// TestDiff_RunsFiltersOfTheUser: the user's own configuration is trusted, with its filters and its
// pager.
func TestDiff_RunsFiltersOfTheUser(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.at(".", "config", "--global", "filter.x.clean", "sed s/two/one/")
	p.at(".", "config", "--global", "core.pager", "less -S")
	p.at("shop", "config", "filter.x.clean", "sed s/one/three/")
	p.write("shop/.git/info/attributes", "sub/* filter=x\n")
	p.write("shop/sub/a", "two\n")
	d, err := worktree.NewDiff(t.Context(), p.git.Environment, p.path("shop"), "", false)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	var out strings.Builder
	require.NoError(t, d.Write(t.Context(), &out))
	assert.Empty(t, out.String(), "with the filter there is no change")
	assert.Equal(t, "less -S", d.Pager)
}

// files returns the content and modification time of each file below a directory.
func (p *place) files(dir string) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	require.NoError(p.t, filepath.WalkDir(p.path(dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = info.ModTime().String() + "\n" + string(text)
		return err
	}))
	return all
}
