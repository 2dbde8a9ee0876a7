package worktree_test

import (
	"context"
	"errors"
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

// trap creates a program that records its runs in a file, and behaves like a filter that changes
// nothing. It returns the paths of the program and of that file.
func (p *place) trap() (program, note string) {
	note = p.path("trapped")
	p.write("trap", "#!/bin/sh\necho \"$0 $*\" >>'"+note+"'\nexec cat\n")
	return p.path("trap"), note
}

// setTraps configures the repository at dir to run the program in every setting that names a
// program.
func (p *place) setTraps(dir, program string) {
	p.t.Helper()
	for name, value := range map[string]string{
		"filter.x.clean": program, "filter.x.smudge": program, "core.fsmonitor": program, "gpg.program": program,
		"log.showSignature": "true",
		"core.sshCommand":   program, "credential.helper": program, "core.pager": program, "core.editor": program,
		"core.askPass": program, "diff.external": program,
		"diff.x.textconv": program, "core.gitProxy": program, "core.alternateRefsCommand": program,
		"alias.status": "!" + program, "alias.ls-files": "!" + program,
		"extensions.partialClone": "evil", "remote.evil.promisor": "true", "remote.evil.url": "ext::" + program,
		"protocol.ext.allow": "always", "protocol.allow": "always",
		"remote.evil.uploadpack": program, "submodule.recurse": "true", "status.submoduleSummary": "true",
	} {
		p.at(dir, "config", name, value)
	}
	common := p.at(dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	p.write(common+"/info/attributes", "* filter=x diff=x\n")
	for _, hook := range []string{
		"post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "fsmonitor-watchman",
	} {
		p.write(common+"/hooks/"+hook, "#!/bin/sh\nexec "+program+" "+hook+" </dev/null\n")
	}
}

// TestLosses_RunNoProgramsOfTheRepository: neither the examination nor the removal runs a program
// from the repository's configuration.
func TestLosses_RunNoProgramsOfTheRepository(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	w, _ := p.add("shop", "")
	p.write(w.Path+"/sub/b", "two\n")
	p.at(w.Path, "add", ".")
	p.at(w.Path, "stash", "--quiet")
	p.at(w.Path, "stash", "drop", "--quiet")
	program, note := p.trap()
	p.setTraps("shop", program)

	p.write(w.Path+"/sub/a", "two\n")
	cmd := exec.Command("git", "diff-files", "--quiet")
	cmd.Dir, cmd.Env = w.Path, p.git.Environment[:2]
	_ = cmd.Run()
	require.FileExists(t, note, "a plain git command runs it")
	require.NoError(t, os.Remove(note))

	var lost *worktree.LossError
	require.ErrorAs(t, p.git.Remove(t.Context(), w, false), &lost)
	assert.Equal(t, "1 uncommitted change", lost.Losses.String())
	p.write(w.Path+"/sub/a", "one\n")
	require.NoError(t, p.git.Remove(t.Context(), w, false))
	assert.NoFileExists(t, note)
	assert.NoDirExists(t, w.Path)
	assert.NoFileExists(t, p.path("shop/.git/refs/heads/corral/shop"))
	assert.NoFileExists(t, note)
}

// TestLosses_FetchNoMissingObjects: a partial clone lacks an object, which git would fetch with a
// program that the repository names.
func TestLosses_FetchNoMissingObjects(t *testing.T) {
	p := newPlace(t)
	p.repository("shop")
	w, _ := p.add("shop", "")
	tree := p.at("shop", "rev-parse", "HEAD:sub")
	program, note := p.trap()
	p.setTraps("shop", program)
	p.write("trap", "#!/bin/sh\necho >>'"+note+"'\nexit 1\n") // a transport that returns nothing
	require.NoError(t, os.Remove(p.path("shop/.git/objects/"+tree[:2]+"/"+tree[2:])))
	require.NoError(t, os.Remove(w.Path+"/.gitignore"))
	cmd := exec.Command("git", "ls-tree", "-r", "HEAD")
	cmd.Dir, cmd.Env = w.Path, p.git.Environment[:2]
	_ = cmd.Run()
	require.FileExists(t, note, "a plain git command runs it")
	require.NoError(t, os.Remove(note))
	l, err := p.git.Losses(t.Context(), w)
	assert.True(t, err != nil || l.Any())
	assert.NoFileExists(t, note)
}

// TestLosses_SkipRepositoryCreatedByAgent: the agent has created a repository in place of a
// submodule, in the worktree only.
func TestLosses_SkipRepositoryCreatedByAgent(t *testing.T) {
	p := newPlace(t)
	p.repository("lib")
	p.repository("shop")
	p.at("shop", "submodule", "--quiet", "add", p.path("lib"), "lib")
	p.at("shop", "commit", "--quiet", "-m", "lib")
	w, _ := p.add("shop", "")
	lib := w.Path + "/lib"
	p.at(lib, "init", "--quiet")
	p.write(lib+"/x", "one\n")
	p.at(lib, "add", ".")
	p.at(lib, "commit", "--quiet", "-m", "mine")
	program, note := p.trap()
	p.setTraps(lib, program)
	p.write(lib+"/x", "two\n")

	var lost *worktree.LossError
	require.ErrorAs(t, p.git.Remove(t.Context(), w, false), &lost)
	assert.Equal(t, `unsaved work in submodule "lib"`, lost.Losses.String())
	assert.NoFileExists(t, note)
	require.NoError(t, p.git.Remove(t.Context(), w, true))
	assert.NoFileExists(t, note)
	assert.NoDirExists(t, w.Path)
}

// TestRemove_FilesThatGitConverts: the content of such a file differs from its blob, and the filter
// that would show whether it was changed is not run.
func TestRemove_FilesThatGitConverts(t *testing.T) {
	for _, row := range []struct {
		name   string
		do     func(p *place, w worktree.Worktree)
		losses string
	}{
		{"no changes", func(*place, worktree.Worktree) {}, ""},
		{"made read-only, as git-lfs does with files that can be locked", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Chmod(w.Path+"/large.bin", 0o500))
			require.NoError(p.t, os.Chmod(w.Path+"/dos.txt", 0o500))
		}, ""},
		{"changed", func(p *place, w worktree.Worktree) { p.write(w.Path+"/large.bin", "content of another file") },
			"1 uncommitted change"},
		{"changed, in the same size",
			func(p *place, w worktree.Worktree) { p.write(w.Path+"/large.bin", "content of B file\n") }, "1 uncommitted change"},
		{"changed, with converted line ends",
			func(p *place, w worktree.Worktree) { p.write(w.Path+"/dos.txt", "one\r\nTWO\r\n") }, "1 uncommitted change"},
		{"staged", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/large.bin", "content of another file")
			p.at(w.Path, "add", ".")
		}, "1 uncommitted change"},
		{"committed and merged", func(p *place, w worktree.Worktree) {
			p.write(w.Path+"/large.bin", "content of another file")
			p.at(w.Path, "commit", "--quiet", "-am", "another")
			p.at("shop", "merge", "--quiet", w.Branch)
		}, ""},
		{"rewritten with the same content, not seen by git", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/large.bin"))
			p.write(w.Path+"/large.bin", "content of a file\n")
		}, "1 uncommitted change"},
		{"rewritten with the same content, seen by git", func(p *place, w worktree.Worktree) {
			require.NoError(p.t, os.Remove(w.Path+"/large.bin"))
			p.write(w.Path+"/large.bin", "content of a file\n")
			// The file has to be older than the index: git does not trust the times of a file that may have
			// changed since.
			earlier := time.Now().Add(-time.Hour)
			require.NoError(p.t, os.Chtimes(w.Path+"/large.bin", earlier, earlier))
			p.at(w.Path, "update-index", "--really-refresh")
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlace(t)
			p.repository("shop")
			p.at("shop", "config", "filter.pointer.clean", "sed s/^content/pointer.to.content/")
			p.at("shop", "config", "filter.pointer.smudge", "sed s/^pointer.to.content/content/")
			p.at("shop", "config", "filter.pointer.required", "true")
			p.write("shop/.gitattributes", "*.bin filter=pointer -text\n*.txt text eol=crlf\n")
			p.write("shop/large.bin", "content of a file\n")
			p.write("shop/dos.txt", "one\r\ntwo\r\n")
			p.at("shop", "add", ".")
			p.at("shop", "commit", "--quiet", "-m", "converted")
			require.Contains(t, p.at("shop", "cat-file", "blob", ":large.bin"), "pointer")
			w, _ := p.add("shop", "")
			text, err := os.ReadFile(w.Path + "/large.bin")
			require.NoError(t, err)
			require.Equal(t, "content of a file\n", string(text))
			row.do(p, w)
			err = p.git.Remove(t.Context(), w, false)
			if row.losses == "" {
				require.NoError(t, err)
				return
			}
			var lost *worktree.LossError
			require.ErrorAs(t, err, &lost)
			assert.Equal(t, row.losses, lost.Losses.String())
		})
	}
}

// TestAdd_DoesNotDelayOtherRepositories: only steps that change the same repository wait for each
// other.
func TestAdd_DoesNotDelayOtherRepositories(t *testing.T) {
	p := newPlace(t)
	p.repository("slow")
	p.repository("shop")
	p.write("slow/.git/hooks/post-checkout",
		"#!/bin/sh\ntouch '"+p.path("begun")+"'\nuntil [ -e '"+p.path("enough")+"' ]; do :; done\n")
	ended := make(chan error, 1)
	go func() { _, _, err := p.git.Add(t.Context(), p.request("slow", "")); ended <- err }()
	require.Eventually(t, func() bool { _, err := os.Stat(p.path("begun")); return err == nil }, 30*time.Second,
		time.Millisecond)

	p.add("shop", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := p.git
	waits.Run = func(ctx context.Context, _ string, input []byte) ([]byte, error) {
		defer cancel() // after the branch was chosen, Add waits
		return worktree.RunStep(ctx, input), nil
	}
	_, _, err := waits.Add(ctx, p.request("slow", "other"))
	require.ErrorContains(t, err, "git waited too long for another worktree of")
	require.ErrorContains(t, err, p.path("slow/.git"))
	p.write("enough", "")
	require.NoError(t, <-ended)
	left, err := filepath.Glob(p.root + "/.*.making")
	require.NoError(t, err)
	assert.Len(t, left, 1, "the marker file of the unconfirmed worktree")
}

// TestAdd_CannotRunGit: an incomplete worktree is removed at once or, if that is not possible
// either, found and removed later.
func TestAdd_CannotRunGit(t *testing.T) {
	fails := errors.New("no such unit")
	for _, row := range []struct {
		name        string
		ran         bool // git ran before the step was ended
		err         error
		unconfirmed int
	}{
		{"it was not run", false, errors.Join(worktree.ErrNotRun, fails), 0},
		{"it was ended", true, fails, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlace(t)
			p.repository("shop")
			before := p.all("shop")
			steps := 0
			broken := p.git
			broken.Run = func(ctx context.Context, _ string, input []byte) ([]byte, error) {
				if steps++; steps == 1 || steps == 2 && row.ran {
					output := worktree.RunStep(ctx, input)
					if steps == 1 {
						return output, nil
					}
				}
				return nil, row.err
			}
			_, _, err := broken.Add(t.Context(), p.request("shop", ""))
			require.ErrorIs(t, err, fails)
			unconfirmed, err := worktree.Unconfirmed(p.root)
			require.NoError(t, err)
			require.Len(t, unconfirmed, row.unconfirmed)
			for _, w := range unconfirmed {
				other, _ := p.add("shop", "")
				assert.Equal(t, p.root+"/shop-2", other.Path, "its directory is not reused")
				require.NoError(t, p.git.Remove(t.Context(), other, false))
				require.NoError(t, p.git.Reclaim(t.Context(), w))
			}
			p.untouched("shop", strings.ReplaceAll(before, "\r", ""))
		})
	}
}
