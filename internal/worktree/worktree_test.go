package worktree_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/worktree"
)

// place is a directory with git repositories in it.
type place struct {
	t    *testing.T
	dir  string
	root string // directory of the worktrees
	git  worktree.Git
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := &place{t: t, dir: dir, root: filepath.Join(dir, "data", "worktrees")}
	p.write("home/.gitconfig", "[user]\n\tname = A\n\temail = a@example.org\n"+
		"[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n")
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/home", "GIT_DIR=/nowhere", "GIT_WORK_TREE=/nowhere",
	}
	p.git = worktree.Git{Environment: environment, Run: runHere}
	return p
}

// runHere runs a step in this process.
func runHere(ctx context.Context, _ string, input []byte) ([]byte, error) {
	return worktree.RunStep(ctx, input), nil
}

// at runs git in a directory of the place, as a user would.
func (p *place) at(dir string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = p.path(dir)
	cmd.Env = p.git.Environment[:2]
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, "git %q: %s", args, out)
	return strings.TrimSpace(string(out))
}

func (p *place) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.dir, name)
}

func (p *place) write(name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o700))
	require.NoError(p.t, os.WriteFile(p.path(name), []byte(text), 0o700))
}

// repository creates a repository with one commit, which contains the file sub/a.
func (p *place) repository(name string) {
	p.t.Helper()
	p.write(name+"/sub/a", "one\n")
	p.write(name+"/.gitignore", "*.o\n")
	p.at(name, "init", "--quiet")
	p.at(name, "add", ".")
	p.at(name, "commit", "--quiet", "-m", "first")
}

func (p *place) request(dir, branch string) worktree.Request {
	return worktree.Request{Dir: p.path(dir), Branch: branch, Own: "corral/shop", Root: p.root, Name: "shop"}
}

// add creates and confirms a worktree.
func (p *place) add(dir, branch string) (worktree.Worktree, string) {
	p.t.Helper()
	w, at, err := p.git.Add(p.t.Context(), p.request(dir, branch))
	require.NoError(p.t, err)
	require.NoError(p.t, w.Confirm())
	return w, at
}

// untouched checks that a failed Add has left nothing behind.
func (p *place) untouched(dir string, before string) {
	p.t.Helper()
	assert.Equal(p.t, before, p.all(dir))
	left, err := filepath.Glob(p.root + "/*")
	require.NoError(p.t, err)
	markers, err := filepath.Glob(p.root + "/.*")
	require.NoError(p.t, err)
	assert.Empty(p.t, append(left, markers...))
}

// all returns all branches and worktrees of a repository.
func (p *place) all(dir string) string {
	p.t.Helper()
	return p.at(dir, "for-each-ref") + "\n" + p.at(dir, "worktree", "list")
}

func TestAdd_CreatesWorktree(t *testing.T) {
	t.Run("a new branch at HEAD", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		w, dir := p.add("shop", "")
		assert.Equal(t, worktree.Worktree{
			Repository: p.path("shop/.git"), Path: p.root + "/shop", Branch: "corral/shop", Made: true,
			Base: p.at("shop", "rev-parse", "HEAD"),
		}, w)
		assert.Equal(t, w.Path, dir)
		assert.FileExists(t, dir+"/sub/a")
		assert.Equal(t, "corral/shop", p.at(dir, "branch", "--show-current"))
		again, _ := p.add("shop", "")
		assert.Equal(t, "corral/shop-2", again.Branch, "the name was taken")
		assert.Equal(t, p.root+"/shop-2", again.Path)
	})
	t.Run("from a directory in the repository: the same one", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		w, dir := p.add("shop/sub", "")
		assert.Equal(t, w.Path+"/sub", dir)
	})
	t.Run("from another worktree", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		first, _ := p.add("shop", "")
		second, _ := p.add(first.Path, "other")
		assert.Equal(t, p.path("shop/.git"), second.Repository)
	})
	t.Run("an existing branch", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		p.at("shop", "branch", "fix")
		w, dir := p.add("shop", "fix")
		assert.False(t, w.Made)
		assert.Equal(t, "fix", p.at(dir, "branch", "--show-current"))
	})
	t.Run("a branch of a remote is tracked", func(t *testing.T) {
		p := newPlace(t)
		p.repository("origin")
		p.at("origin", "branch", "fix")
		p.at(".", "clone", "--quiet", "origin", "shop")
		w, dir := p.add("shop", "fix")
		assert.True(t, w.Made)
		assert.Equal(t, "origin/fix", p.at(dir, "rev-parse", "--abbrev-ref", "fix@{upstream}"))
	})
	t.Run("uncommitted changes are not moved", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		p.write("shop/sub/a", "changed\n")
		p.write("shop/new", "")
		_, dir := p.add("shop", "")
		text, err := os.ReadFile(dir + "/sub/a")
		require.NoError(t, err)
		assert.Equal(t, "one\n", string(text))
		assert.NoFileExists(t, dir+"/new")
		assert.Equal(t, "M sub/a\n?? new", p.at("shop", "status", "--porcelain"))
	})
	t.Run("a detached HEAD", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		p.at("shop", "checkout", "--quiet", "--detach")
		p.at("shop", "commit", "--quiet", "--allow-empty", "-m", "nowhere")
		w, _ := p.add("shop", "")
		assert.Equal(t, p.at("shop", "rev-parse", "HEAD"), w.Base)
	})
	t.Run("a bare repository", func(t *testing.T) {
		p := newPlace(t)
		p.repository("shop")
		p.at(".", "clone", "--quiet", "--bare", "shop", "shop.git")
		w, dir := p.add("shop.git", "")
		assert.Equal(t, p.path("shop.git"), w.Repository)
		assert.FileExists(t, dir+"/sub/a")
		require.NoError(t, p.git.Remove(t.Context(), w, false))
	})
	t.Run("submodules are left as git leaves them: empty", func(t *testing.T) {
		p := newPlace(t)
		p.repository("lib")
		p.repository("shop")
		p.at("shop", "submodule", "--quiet", "add", p.path("lib"), "lib")
		p.at("shop", "commit", "--quiet", "-m", "lib")
		w, dir := p.add("shop", "")
		assert.DirExists(t, dir+"/lib")
		assert.NoFileExists(t, dir+"/lib/sub/a")
		require.NoError(t, p.git.Remove(t.Context(), w, false))
	})
}

func TestAdd_RejectsInvalidRequests(t *testing.T) {
	for _, row := range []struct {
		name, dir, branch string
		prepare           func(p *place)
		message           string
	}{
		{"not in a repository", "plain", "", func(p *place) { p.write("plain/a", "") }, "not a git repository"},
		{"a repository without a commit", "empty", "",
			func(p *place) { p.write("empty/a", ""); p.at("empty", "init", "--quiet") }, "its repository has no commit yet"},
		{"an option", "shop", "--force", nil, `"--force" cannot be the name of a branch`},
		{"an invalid branch name", "shop", "a..b", nil, `"a..b" cannot be the name of a branch`},
		{"a name that git would expand", "shop", "@{-1}", nil, `"@{-1}" cannot be the name of a branch`},
		{"a branch that is checked out", "shop", "main", nil, "'main' is already checked out at"},
		{"a branch below another", "shop", "main/fix", nil, "main/fix"},
		{"a directory that only this worktree has", "shop/new", "", func(p *place) { p.write("shop/new/a", "") },
			`branch "corral/shop" has no directory "new"`},
		{"a hook that fails", "shop", "",
			func(p *place) { p.write("shop/.git/hooks/post-checkout", "#!/bin/sh\necho not here >&2\nexit 1\n") }, "not here"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlace(t)
			p.repository("shop")
			if row.prepare != nil {
				row.prepare(p)
			}
			before := p.all("shop")
			_, _, err := p.git.Add(t.Context(), p.request(row.dir, row.branch))
			require.ErrorContains(t, err, row.message)
			p.untouched("shop", before)
		})
	}
}

func TestAdd_FailsWithoutGit(t *testing.T) {
	p := newPlace(t)
	p.git.Environment = []string{"PATH=" + t.TempDir()}
	_, _, err := p.git.Add(t.Context(), p.request(".", ""))
	require.ErrorIs(t, err, worktree.ErrNoGit)
}

func TestAdd_FailsWhenGitTakesTooLong(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.write("shop/.git/hooks/post-checkout", "#!/bin/sh\ntouch "+p.dir+"/begun\nexec sleep 1000\n")
	before := p.all("shop")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := p.git.Add(ctx, p.request("shop", ""))
	require.ErrorContains(t, err, "git worktree takes too long")
	p.untouched("shop", before)
}

// TestAdd_DoesNotWaitForBackgroundProcessOfHook: the process has inherited git's standard error.
func TestAdd_DoesNotWaitForBackgroundProcessOfHook(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.write("shop/.git/hooks/post-checkout", "#!/bin/sh\nsleep 1000 &\necho $! >"+p.dir+"/left\n")
	begin := time.Now()
	w, _ := p.add("shop", "")
	assert.Less(t, time.Since(begin), 4*time.Second)
	assert.FileExists(t, w.Path+"/sub/a")
	text, err := os.ReadFile(p.dir + "/left")
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", strings.TrimSpace(string(text))).Run())
}

func TestUnconfirmed_ListsWorktreesToUndo(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	confirmed, _ := p.add("shop", "kept")
	before := p.all("shop")
	w, _, err := p.git.Add(t.Context(), p.request("shop", ""))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(p.root+"/claimed", 0o700))

	unconfirmed, err := worktree.Unconfirmed(p.root)
	require.NoError(t, err)
	assert.Equal(t, []worktree.Worktree{w}, unconfirmed)
	require.NoError(t, p.git.Undo(t.Context(), w))
	assert.Equal(t, before, p.all("shop"))
	unconfirmed, err = worktree.Unconfirmed(p.root)
	require.NoError(t, err)
	assert.Empty(t, unconfirmed)
	left, err := os.ReadDir(p.root)
	require.NoError(t, err)
	assert.Len(t, left, 1)
	assert.DirExists(t, confirmed.Path)
}

func TestLosses_CoverUncommittedAndUnmergedWork(t *testing.T) {
	commit := func(p *place, dir string) {
		p.at(dir, "commit", "--quiet", "--allow-empty", "-m", "work")
	}
	for _, row := range []struct {
		name   string
		do     func(p *place, w worktree.Worktree)
		losses string // "" for none
	}{
		{"no changes", func(*place, worktree.Worktree) {}, ""},
		{"a file was changed", func(p *place, w worktree.Worktree) { p.write(w.Path+"/sub/a", "two") },
			"1 uncommitted change"},
		{"files were staged and removed", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/b", "two")
			p.at(w.Path, "add", "b")
			require.NoError(p.t, os.Remove(w.Path+"/sub/a"))
		}, "2 uncommitted changes"},
		{"a file was changed with the same size and time", func(p *place, w worktree.Worktree) {
			info, err := os.Stat(w.Path + "/sub/a")
			require.NoError(p.t, err)
			p.write(w.Path+"/sub/a", "two\n")
			require.NoError(p.t, os.Chtimes(w.Path+"/sub/a", time.Time{}, info.ModTime()))
		}, "1 uncommitted change"},
		{"a file was rewritten with the same content", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/sub/a"))
			p.write(w.Path+"/sub/a", "one\n")
		}, ""},
		{"a file is not executable any more", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Chmod(w.Path+"/sub/a", 0o600))
		}, "1 uncommitted change"},
		{"a link in place of a file", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/sub/a"))
			require.NoError(p.t, os.Symlink("one\n", w.Path+"/sub/a"))
		}, "1 uncommitted change"},
		{"a FIFO in place of a file", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/sub/a"))
			require.NoError(p.t, syscall.Mkfifo(w.Path+"/sub/a", 0o700))
		}, "1 uncommitted change"},
		{"an empty file was added with --intent-to-add", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/b", "")
			p.at(w.Path, "add", "--intent-to-add", "b")
		}, "1 uncommitted change"},
		{"a file was staged, and changed again", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/b", "two")
			p.at(w.Path, "add", "b")
			p.write(w.Path+"/b", "three")
		}, "1 uncommitted change"},
		{"a conflict", func(p *place, w worktree.Worktree) {
			p.write("shop/sub/a", "theirs\n")
			p.at("shop", "commit", "--quiet", "-am", "theirs")
			p.write(w.Path+"/sub/a", "ours\n")
			p.at(w.Path, "commit", "--quiet", "-am", "ours")
			p.at(w.Path, "push", "--quiet", "origin", "HEAD")
			cmd := exec.Command("git", "merge", "--quiet", "main")
			cmd.Dir, cmd.Env = w.Path, p.git.Environment[:2]
			require.Error(p.t, cmd.Run())
		}, "1 uncommitted change, an unfinished merge"},
		{"untracked and ignored files", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/b", "")
			p.write(w.Path+"/x.o", "")
		}, "1 untracked file (and 1 ignored)"},
		{"files that git ignores", func(p *place, w worktree.Worktree) { p.write(w.Path+"/x.o", "") }, ""},
		{"a file marked as unchanged", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "update-index", "--assume-unchanged", "sub/a")
			p.write(w.Path+"/sub/a", "two")
		}, "1 uncommitted change"},
		{"a skipped file, changed", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "update-index", "--skip-worktree", "sub/a")
			p.write(w.Path+"/sub/a", "two")
		}, "1 uncommitted change"},
		{"a skipped file, unchanged",
			func(p *place, w worktree.Worktree) { p.at(w.Path, "update-index", "--skip-worktree", "sub/a") }, ""},
		{"a commit", func(p *place, w worktree.Worktree) { commit(p, w.Path) }, "1 commit that is neither merged nor pushed"},
		{"a commit that was merged", func(p *place, w worktree.Worktree) {
			commit(p, w.Path)
			p.at("shop", "merge", "--quiet", w.Branch)
		}, ""},
		{"a commit that was pushed", func(p *place, w worktree.Worktree) {
			commit(p, w.Path)
			p.at(w.Path, "push", "--quiet", "origin", "HEAD")
		}, ""},
		{"commits on another branch", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "checkout", "--quiet", "-b", "other")
			commit(p, w.Path)
			commit(p, w.Path)
		}, "2 commits that are neither merged nor pushed"},
		{"a commit on no branch", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "checkout", "--quiet", "--detach")
			commit(p, w.Path)
		}, "1 commit that is neither merged nor pushed"},
		{"a stash", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/sub/a", "two")
			p.at(w.Path, "stash", "--quiet")
		}, "1 stash"},
		{"somebody else's stash", func(p *place, _ worktree.Worktree) {
			p.write("shop/sub/a", "two")
			p.at("shop", "stash", "--quiet")
		}, ""},
		{"an unfinished rebase", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "-c", "sequence.editor=sed -i 1ibreak", "rebase", "--quiet", "-i", "HEAD", "--no-ff", "--force-rebase")
		}, "an unfinished rebase"},
		{"a submodule with a change", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "submodule", "--quiet", "update", "--init")
			p.write(w.Path+"/lib/sub/a", "two")
		}, `unsaved work in submodule "lib"`},
		{"a submodule with a commit that would be lost", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "submodule", "--quiet", "update", "--init")
			p.at(w.Path+"/lib", "checkout", "--quiet", "-b", "work")
			commit(p, w.Path+"/lib")
			p.at(w.Path+"/lib", "checkout", "--quiet", "-")
		}, `unsaved work in submodule "lib"`},
		{"a submodule at another commit", func(p *place, w worktree.Worktree) {
			p.write("lib/more", "")
			p.at("lib", "add", ".")
			p.at("lib", "commit", "--quiet", "-m", "more")
			p.at(w.Path, "submodule", "--quiet", "update", "--init", "--remote")
		}, "1 uncommitted change"},
		{"a submodule's directory is gone",
			func(p *place, w worktree.Worktree) { require.NoError(p.t, os.Remove(w.Path+"/lib")) }, "1 uncommitted change"},
		{"files in place of a submodule", func(p *place, w worktree.Worktree) { p.write(w.Path+"/lib/mine", "") },
			`unsaved work in submodule "lib"`},
		{"a repository in place of a submodule",
			func(p *place, w worktree.Worktree) { p.at(w.Path+"/lib", "init", "--quiet") }, `unsaved work in submodule "lib"`},
		{"a link in place of a submodule", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/lib"))
			require.NoError(p.t, os.Symlink(p.path("lib"), w.Path+"/lib"))
		}, `unsaved work in submodule "lib"`},
		{"a submodule without changes", func(p *place, w worktree.Worktree) {
			p.at(w.Path, "submodule", "--quiet", "update", "--init")
		}, ""},
		{"the worktree was removed by hand",
			func(p *place, w worktree.Worktree) { require.NoError(p.t, os.RemoveAll(w.Path)) }, ""},
		{"the same, and git has pruned it", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.RemoveAll(w.Path))
			p.at("shop", "worktree", "prune")
		}, ""},
		{"the same, after a commit", func(p *place, w worktree.Worktree) {
			commit(p, w.Path)
			require.NoError(p.t, os.RemoveAll(w.Path))
		}, "1 commit that is neither merged nor pushed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlace(t)
			p.repository("lib")
			p.repository("first")
			p.at("first", "submodule", "--quiet", "add", p.path("lib"), "lib")
			p.at("first", "commit", "--quiet", "-m", "lib")
			p.at(".", "clone", "--quiet", "--bare", "first", "origin.git")
			p.at(".", "clone", "--quiet", "origin.git", "shop")
			w, _ := p.add("shop", "")
			row.do(p, w)
			_, statErr := os.Lstat(w.Path)
			err := p.git.Remove(t.Context(), w, false)
			if row.losses == "" {
				require.NoError(t, err)
				assert.NoDirExists(t, w.Path)
				assert.NotContains(t, p.at("shop", "branch", "--list"), "corral/shop")
				assert.NotContains(t, p.at("shop", "worktree", "list"), w.Path)
				return
			}
			var lost *worktree.LossError
			require.ErrorAs(t, err, &lost)
			assert.Equal(t, row.losses, lost.Losses.String())
			if statErr == nil {
				assert.DirExists(t, w.Path)
			}
			commits := p.at("shop", "rev-list", "--all", "--count")
			require.NoError(t, p.git.Remove(t.Context(), w, true))
			assert.NoDirExists(t, w.Path)
			branches := p.at("shop", "branch", "--list")
			// The branch "other" has the commits.
			stays := lost.Losses.Commits > 0 && !strings.Contains(branches, "other")
			assert.Equal(t, stays, strings.Contains(branches, "corral/shop"),
				"the branch stays if it has commits of its own: %s", branches)
			assert.Equal(t, commits, p.at("shop", "rev-list", "--all", "--count"), "no commit or stash is lost")
		})
	}
}

func TestRemove_KeepsExistingBranch(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.at("shop", "branch", "fix")
	w, _ := p.add("shop", "fix")
	require.NoError(t, p.git.Remove(t.Context(), w, false))
	assert.Contains(t, p.at("shop", "branch"), "fix")
}

func TestRemove_KeepsLockedWorktree(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	w, _ := p.add("shop", "")
	p.at("shop", "worktree", "lock", "--reason", "on a stick", w.Path)
	for _, force := range []bool{false, true} {
		require.ErrorContains(t, p.git.Remove(t.Context(), w, force), "on a stick")
		assert.DirExists(t, w.Path)
	}
}

func TestRemove_FailsWithoutRepository(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	w, _ := p.add("shop", "")
	require.NoError(t, os.RemoveAll(p.path("shop")))
	for _, force := range []bool{false, true} {
		require.Error(t, p.git.Remove(t.Context(), w, force))
		assert.FileExists(t, w.Path+"/sub/a", "its files are kept")
	}
}
