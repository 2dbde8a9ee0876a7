package worktree_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// untracked returns the files of a worktree that git does not track, with their modes and contents,
// or what links refer to.
func (p *place) untracked(dir string) map[string]string {
	p.t.Helper()
	found := map[string]string{}
	for name := range strings.FieldsSeq(p.at(dir, "ls-files", "--others")) {
		file := filepath.Join(p.path(dir), name)
		info, err := os.Lstat(file)
		require.NoError(p.t, err)
		if link, err := os.Readlink(file); err == nil {
			found[name] = "-> " + link
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(p.t, err)
		found[name] = info.Mode().String() + " " + string(text)
	}
	return found
}

func TestAdd_CopiesIncludedFiles(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.at("shop", "branch", "with-env")
	p.write("shop/.worktreeinclude", "# a comment\n/.env*\n!/.env.example\nnode_modules/\nlink\nfifo\nother/\n")
	p.write("shop/.env", "A=1\n")
	p.write("shop/.env.example", "")
	p.write("shop/sub/.env", "not this: the pattern is for the root")
	p.write("shop/node_modules/a/run", "#!/bin/sh\n")
	p.write("shop/out.o", "git ignores it, but it is not included")
	p.repository("shop/other")
	require.NoError(t, os.Chmod(p.path("shop/.env"), 0o400))
	require.NoError(t, os.Chmod(p.path("shop/node_modules"), 0o750))
	require.NoError(t, os.Symlink("/etc", p.path("shop/link")))
	require.NoError(t, syscall.Mkfifo(p.path("shop/fifo"), 0o600))
	included := map[string]string{
		".env": "-r-------- A=1\n", "node_modules/a/run": "-rwx------ #!/bin/sh\n", "link": "-> /etc",
	}

	w, _ := p.add("shop/sub", "")
	assert.Equal(t, included, p.untracked(w.Path))
	info, err := os.Stat(w.Path + "/node_modules")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o750), info.Mode().Perm())

	// They come from the main worktree, also for a request from another one.
	require.NoError(t, os.WriteFile(w.Path+"/.env.local", nil, 0o600))
	again, _ := p.add(w.Path, "")
	assert.Equal(t, included, p.untracked(again.Path))
}

// TestAdd_ReplacesNothing: a branch may track a file that is untracked in the main worktree, or
// have links that lead out of the worktree, in the place of directories.
func TestAdd_ReplacesNothing(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.write("outside/file", "")
	p.at("shop", "checkout", "--quiet", "-b", "other")
	p.write("shop/.env", "tracked\n")
	p.write("shop/build", "a file\n")
	require.NoError(t, os.Symlink(p.path("outside"), p.path("shop/config")))
	require.NoError(t, os.Symlink("sub", p.path("shop/inside")))
	p.at("shop", "add", ".")
	p.at("shop", "commit", "--quiet", "-m", "other")
	p.at("shop", "checkout", "--quiet", "main")
	p.write("shop/.worktreeinclude", ".env\nbuild/\nconfig/\ninside/\n")
	for _, name := range []string{".env", "build/x", "config/x", "config/y/z", "inside/x", "sub/build/x"} {
		p.write("shop/"+name, "untracked\n")
	}
	w, _ := p.add("shop", "other")
	assert.Equal(t, map[string]string{"sub/build/x": "-rwx------ untracked\n"}, p.untracked(w.Path))
	assert.Empty(t, p.at(w.Path, "diff"))
	entries, err := os.ReadDir(p.path("outside"))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing was written there")
}

// TestAdd_RefusesLinksThatReplaceDirectories: an agent replaces a directory by a link after git has
// listed its files.
func TestAdd_RefusesLinksThatReplaceDirectories(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.write("secret/key", "secret")
	p.write("shop/.worktreeinclude", "config/\n")
	p.write("shop/config/key", "")
	git, err := exec.LookPath("git")
	require.NoError(t, err)
	p.write("bin/git", "#!/bin/sh\n"+git+` "$@" || exit
case $* in *--others*) mv config moved; ln -s ../secret config;; esac
`)
	p.git.Environment[0] = "PATH=" + p.path("bin") + ":" + os.Getenv("PATH")
	before := p.all("shop")
	_, _, err = p.git.Add(t.Context(), p.request("shop", ""))
	require.ErrorContains(t, err, `cannot copy "config/key" (.worktreeinclude)`)
	p.untouched("shop", before)
}

func TestAdd_FailsIfAFileCannotBeCopied(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.write("shop/.worktreeinclude", ".env\n")
	p.write("shop/.env", "")
	before := p.all("shop")
	run := p.git.Run
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.git.Run = func(c context.Context, name string, input []byte) ([]byte, error) {
		if strings.Contains(string(input), `"Do":"include"`) {
			cancel()
		}
		return run(c, name, input)
	}
	_, _, err := p.git.Add(ctx, p.request("shop", ""))
	require.Error(t, err)
	p.untouched("shop", before)
}

// TestAdd_CopiesFromTheWorktreeOfABareRepository: there is no main worktree.
func TestAdd_CopiesFromTheWorktreeOfABareRepository(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	p.at(".", "clone", "--quiet", "--bare", "shop", "shop.git")
	p.at("shop.git", "worktree", "add", "--quiet", p.path("main"), "main")
	p.write("main/.worktreeinclude", ".env\n")
	p.write("main/.env", "A=1\n")
	w, _ := p.add("main/sub", "")
	assert.Equal(t, map[string]string{".env": "-rwx------ A=1\n"}, p.untracked(w.Path))
	w, _ = p.add("shop.git", "")
	assert.Empty(t, p.untracked(w.Path))
}
