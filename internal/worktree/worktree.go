// Package worktree makes git worktrees, tells what would be lost with one, and removes it. It also
// shows what has changed in a working tree: see Diff.
//
// A worktree is made in one step as far as others can tell: until it is settled, a note of it lies
// beside it, and what a caller did not live to settle can be found and undone.
package worktree

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// Worktree is one that was made.
type Worktree struct {
	Repository string `json:"repository"`     // its git directory, which all its worktrees share
	Path       string `json:"path"`           // where the worktree is
	Branch     string `json:"branch"`         // that it was made with, without refs/heads/
	Made       bool   `json:"made,omitempty"` // the branch was made for it, too
	Base       string `json:"base"`           // the commit that it began with
}

// Request is what is wanted.
type Request struct {
	Dir    string // somewhere in a repository, absolute
	Branch string // one that is there, or is to be made; "" for Own, or Own-2 and so on where that is taken
	Own    string
	Series string // not empty: Own has to be the branch, and where it is taken, Add returns a *TakenError with the first free one of Series-2, Series-3, …
	Root   string // where worktrees are made; it is made itself if it is not there
	Name   string // of the directory there, with -2 and so on where that is taken
}

// TakenError is returned where Own is taken and has to be the branch.
type TakenError struct {
	Free string // a branch of the Series that is not taken
}

func (e *TakenError) Error() string { return fmt.Sprintf("the branch is taken; %q is free", e.Free) }

// most bounds the search for a name that is free.
const most = 1000

// notePrefix and noteSuffix are around the name of a directory in that of the note of its being
// made.
const (
	notePrefix = "."
	noteSuffix = ".making"
)

// plan finds out what worktree is to be made for a request, which has no path yet; what git is to
// begin it with; and where in its repository the request's directory is.
func (p program) plan(ctx context.Context, r Request) (w Worktree, from, prefix string, err error) {
	if prefix, err = p.look(ctx, r.Dir, &w); err == nil {
		from, err = p.chooseBranch(ctx, r, &w)
	}
	return w, from, prefix, err
}

// add makes the worktree that was planned, in the directory that was claimed for it.
func (p program) add(ctx context.Context, dir string, w Worktree, from string) error {
	args := []string{"worktree", "add", "--quiet"}
	if w.Made {
		args = append(args, "-b", w.Branch)
	}
	_, err := p.checkOut(ctx, dir, append(args, "--", w.Path, from)...)
	return err
}

// look finds the repository that dir is in, and where in it.
func (p program) look(ctx context.Context, dir string, w *Worktree) (prefix string, err error) {
	w.Repository, err = p.line(ctx, dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return "", err
	}
	return p.line(ctx, dir, "rev-parse", "--show-prefix")
}

// chooseBranch decides on the branch, and returns what the worktree is to begin with.
func (p program) chooseBranch(ctx context.Context, r Request, w *Worktree) (from string, err error) {
	w.Branch = r.Branch
	if r.Branch == "" {
		w.Branch = r.Own
	}
	if err := p.checkBranch(ctx, r.Dir, w.Branch); err != nil {
		return "", err
	}
	there, err := p.has(ctx, r.Dir, "refs/heads/"+w.Branch)
	for n := 2; err == nil && there && r.Branch == "" && n < most; n++ {
		w.Branch = fmt.Sprintf("%s-%d", cmp.Or(r.Series, r.Own), n)
		there, err = p.has(ctx, r.Dir, "refs/heads/"+w.Branch)
	}
	if err == nil && r.Branch == "" && r.Series != "" && w.Branch != r.Own {
		err = &TakenError{w.Branch}
	}
	if err != nil {
		return "", err
	}
	w.Made, from = !there, "HEAD"
	at := "HEAD"
	if there {
		from, at = w.Branch, "refs/heads/"+w.Branch
	} else if remote, err := p.onRemote(ctx, r.Dir, r.Branch); err != nil {
		return "", err
	} else if remote != "" {
		from, at = remote, remote
	}
	if w.Base, err = p.line(ctx, r.Dir, "rev-parse", "--verify", "--quiet", at+"^{commit}"); err != nil {
		if refused(err) {
			return "", errors.New("its repository has no commit yet")
		}
		return "", err
	}
	return from, nil
}

// checkBranch refuses what cannot be a branch's name, or be taken for an option.
func (p program) checkBranch(ctx context.Context, dir, branch string) error {
	wrong := fmt.Errorf("%.100q cannot be the name of a branch", branch)
	if strings.HasPrefix(branch, "-") || branch == "HEAD" || strings.ContainsRune(branch, 0) {
		return wrong
	}
	if _, err := p.run(ctx, dir, "check-ref-format", "refs/heads/"+branch); refused(err) {
		return wrong
	} else if err != nil {
		return err
	}
	return nil
}

// has tells whether there is a reference of this full name.
func (p program) has(ctx context.Context, dir, ref string) (bool, error) {
	_, err := p.run(ctx, dir, "show-ref", "--verify", "--quiet", "--", ref)
	if refused(err) {
		return false, nil
	}
	return err == nil, err
}

// onRemote returns the one remote's branch of this name, in full, "" if there is none or more than
// one.
func (p program) onRemote(ctx context.Context, dir, branch string) (string, error) {
	if branch == "" {
		return "", nil
	}
	out, err := p.line(ctx, dir, "for-each-ref", "--format=%(refname)", "refs/remotes/*/"+branch)
	if err != nil || out == "" || strings.Contains(out, "\n") {
		return "", err
	}
	return out, nil
}

// claim makes the worktree's directory, which nobody else has, and the note beside it.
func claim(r Request, w *Worktree) error {
	if err := os.MkdirAll(r.Root, 0o700); err != nil {
		return err
	}
	var err error
	for n := 1; n < most; n++ {
		w.Path = filepath.Join(r.Root, r.Name)
		if n > 1 {
			w.Path += fmt.Sprintf("-%d", n)
		}
		if hasNote(r.Root, filepath.Base(w.Path)) {
			continue // of one that is about to be undone
		}
		if err = os.Mkdir(w.Path, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(w)
	if err == nil {
		err = atomicfile.Write(w.note(), text, 0o600)
	}
	if err != nil {
		_ = os.Remove(w.Path)
	}
	return err
}

func (w Worktree) note() string {
	return filepath.Join(filepath.Dir(w.Path), notePrefix+filepath.Base(w.Path)+noteSuffix)
}

// Confirm is called once the caller has noted the worktree: it is not undone any more.
func (w Worktree) Confirm() error {
	if err := os.Remove(w.note()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// maxNote bounds what is read of a note, in bytes.
const maxNote = 64 << 10

// Unconfirmed returns the worktrees below root that were never settled, whole or not. Directories that
// were claimed for one and have nothing in them are removed.
func Unconfirmed(root string) ([]Worktree, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Worktree
	for _, entry := range entries {
		name, is := strings.CutSuffix(strings.TrimPrefix(entry.Name(), notePrefix), noteSuffix)
		if !is || !strings.HasPrefix(entry.Name(), notePrefix) {
			if entry.IsDir() && !hasNote(root, entry.Name()) {
				_ = os.Remove(filepath.Join(root, entry.Name())) // which only takes an empty one
			}
			continue
		}
		var w Worktree
		text, readErr := safefile.Read(filepath.Join(root, entry.Name()), maxNote)
		if readErr == nil {
			w, readErr = parseNote(text, filepath.Join(root, name))
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		all = append(all, w)
	}
	return all, err
}

// parseNote reads the note of a worktree at a path.
func parseNote(text []byte, path string) (w Worktree, err error) {
	if err := json.Unmarshal(text, &w); err != nil {
		return w, err
	}
	if w.Path != path {
		return w, fmt.Errorf("the note of worktree %q belongs to another directory", path)
	}
	return w, nil
}

func hasNote(root, name string) bool {
	_, err := os.Lstat(filepath.Join(root, notePrefix+name+noteSuffix))
	return err == nil
}

// undo takes back what add has done, or has begun: nobody has worked there. A branch that was made
// for it goes, too, unless it was used since.
func (p program) undo(ctx context.Context, w Worktree) error {
	_, gitErr := p.run(ctx, w.Repository, "worktree", "remove", "--force", "--force", "--", w.Path) // the second one: also while it is locked, being made
	if err := os.RemoveAll(w.Path); err != nil {
		return err
	}
	if gitErr != nil && !refused(gitErr) {
		return gitErr
	}
	if w.Made {
		p.dropBranch(ctx, w, w.Base)
	}
	return nil
}

// reclaim is undo for what was found by Strays: somebody else may have found it meanwhile. What
// they have put there keeps it, and the error is a *LossError.
func (p program) reclaim(ctx context.Context, w Worktree) error {
	l, err := p.losses(ctx, w)
	l.Deleted, l.Commits = 0, 0 // git had not checked it out yet; commits are on the branch, which undo only takes if there are none
	switch {
	case err != nil && !refused(err): // a refusal is of what is not whole
		return err
	case err == nil && l.Any():
		return &LossError{w, l}
	}
	return p.undo(ctx, w)
}

// dropBranch deletes the worktree's branch if it is at this commit. Git refuses where another
// worktree has it.
func (p program) dropBranch(ctx context.Context, w Worktree, commit string) {
	at, err := p.line(ctx, w.Repository, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
	if err == nil && at == commit {
		_, _ = p.run(ctx, w.Repository, "branch", "--quiet", "-D", "--", w.Branch)
	}
}
