// Package worktree creates git worktrees, reports what would be lost with one, and removes it. It
// also shows the changes in a working tree: see Diff.
//
// Creation is atomic for other processes: until the caller confirms a worktree, a marker file lies
// beside it, so that a worktree whose creation was interrupted can be found and removed.
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

// Worktree is a worktree that Add has created.
type Worktree struct {
	Repository string `json:"repository"`     // the git directory, which all worktrees of a repository share
	Path       string `json:"path"`           // of the worktree
	Branch     string `json:"branch"`         // with which it was created, without refs/heads/
	Made       bool   `json:"made,omitempty"` // the branch was created for it
	Base       string `json:"base"`           // the commit at which it was created
}

// Request describes a worktree to create.
type Request struct {
	Dir string // absolute path of a directory in a repository
	// Branch is an existing branch or one to create. If it is "", Add creates Own, or Own-2 and so on
	// if that exists.
	Branch string
	Own    string
	// If Series is not empty, Add creates no other branch than Own. If that exists, it returns a
	// *TakenError with the first of Series-2, Series-3, … that does not.
	Series string
	Root   string // directory of the worktrees; created if it does not exist
	Name   string // of the directory in Root; with -2 and so on if that exists
}

// TakenError is returned if the branch Own exists and Series is set.
type TakenError struct {
	Free string // the first branch of the Series that does not exist
}

func (e *TakenError) Error() string { return fmt.Sprintf("the branch is taken; %q is free", e.Free) }

// maxNames bounds the search for an unused name.
const maxNames = 1000

// markerPrefix and markerSuffix enclose the name of a worktree's directory in the name of its
// marker file.
const (
	markerPrefix = "."
	markerSuffix = ".making"
)

// plan determines which worktree a request describes, without its path; the revision from which git
// creates it; and the path of the request's directory in its repository.
func (p program) plan(ctx context.Context, r Request) (w Worktree, from, prefix string, err error) {
	w.Repository, err = p.runLine(ctx, r.Dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err == nil {
		prefix, err = p.runLine(ctx, r.Dir, "rev-parse", "--show-prefix")
	}
	if err == nil {
		from, err = p.chooseBranch(ctx, r, &w)
	}
	return w, from, prefix, err
}

// add creates the planned worktree in the directory that claim has created.
func (p program) add(ctx context.Context, dir string, w Worktree, from string) error {
	args := []string{"worktree", "add", "--quiet"}
	if w.Made {
		args = append(args, "-b", w.Branch)
	}
	_, err := p.runWithHooks(ctx, dir, append(args, "--", w.Path, from)...)
	return err
}

// chooseBranch sets the branch of the worktree, and returns the revision from which git creates it.
func (p program) chooseBranch(ctx context.Context, r Request, w *Worktree) (from string, err error) {
	w.Branch = r.Branch
	if r.Branch == "" {
		w.Branch = r.Own
	}
	if err := p.checkBranch(ctx, r.Dir, w.Branch); err != nil {
		return "", err
	}
	exists, err := p.refExists(ctx, r.Dir, "refs/heads/"+w.Branch)
	for n := 2; err == nil && exists && r.Branch == "" && n < maxNames; n++ {
		w.Branch = fmt.Sprintf("%s-%d", cmp.Or(r.Series, r.Own), n)
		exists, err = p.refExists(ctx, r.Dir, "refs/heads/"+w.Branch)
	}
	if err == nil && r.Branch == "" && r.Series != "" && w.Branch != r.Own {
		err = &TakenError{w.Branch}
	}
	if err != nil {
		return "", err
	}
	w.Made, from = !exists, "HEAD"
	at := "HEAD"
	if exists {
		from, at = w.Branch, "refs/heads/"+w.Branch
	} else if remote, err := p.remoteBranch(ctx, r.Dir, r.Branch); err != nil {
		return "", err
	} else if remote != "" {
		from, at = remote, remote
	}
	if w.Base, err = p.runLine(ctx, r.Dir, "rev-parse", "--verify", "--quiet", at+"^{commit}"); err != nil {
		if isNonZeroExit(err) {
			return "", errors.New("its repository has no commit yet")
		}
		return "", err
	}
	return from, nil
}

// checkBranch rejects a name that is not valid for a branch or that git could take for an option.
func (p program) checkBranch(ctx context.Context, dir, branch string) error {
	invalid := fmt.Errorf("%.100q cannot be the name of a branch", branch)
	if strings.HasPrefix(branch, "-") || branch == "HEAD" || strings.ContainsRune(branch, 0) {
		return invalid
	}
	_, err := p.run(ctx, dir, "check-ref-format", "refs/heads/"+branch)
	if isNonZeroExit(err) {
		return invalid
	}
	return err
}

// refExists reports whether a reference with this full name exists.
func (p program) refExists(ctx context.Context, dir, ref string) (bool, error) {
	_, err := p.run(ctx, dir, "show-ref", "--verify", "--quiet", "--", ref)
	if isNonZeroExit(err) {
		return false, nil
	}
	return err == nil, err
}

// remoteBranch returns the full name of the remote-tracking branch for this branch, "" if no remote
// has it or more than one.
func (p program) remoteBranch(ctx context.Context, dir, branch string) (string, error) {
	if branch == "" {
		return "", nil
	}
	out, err := p.runLine(ctx, dir, "for-each-ref", "--format=%(refname)", "refs/remotes/*/"+branch)
	if err != nil || out == "" || strings.Contains(out, "\n") {
		return "", err
	}
	return out, nil
}

// claim creates the worktree's directory under an unused name, and its marker file.
func claim(r Request, w *Worktree) error {
	if err := os.MkdirAll(r.Root, 0o700); err != nil {
		return err
	}
	var err error
	for n := 1; n < maxNames; n++ {
		w.Path = filepath.Join(r.Root, r.Name)
		if n > 1 {
			w.Path += fmt.Sprintf("-%d", n)
		}
		if hasMarker(r.Root, filepath.Base(w.Path)) {
			continue // the marker of a worktree that is being removed
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
		err = atomicfile.Write(w.markerPath(), text, 0o600)
	}
	if err != nil {
		_ = os.Remove(w.Path)
	}
	return err
}

func (w Worktree) markerPath() string {
	return filepath.Join(filepath.Dir(w.Path), markerPrefix+filepath.Base(w.Path)+markerSuffix)
}

// Confirm removes the marker file. The caller calls it once it has recorded the worktree, which is
// then no longer in Unconfirmed.
func (w Worktree) Confirm() error {
	if err := os.Remove(w.markerPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// maxMarker is the maximum size of a marker file, in bytes.
const maxMarker = 64 << 10

// Unconfirmed returns the worktrees below root that were never confirmed, complete or not. It
// removes empty directories without a marker file.
func Unconfirmed(root string) ([]Worktree, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Worktree
	for _, entry := range entries {
		name, ok := strings.CutSuffix(strings.TrimPrefix(entry.Name(), markerPrefix), markerSuffix)
		if !ok || !strings.HasPrefix(entry.Name(), markerPrefix) {
			if entry.IsDir() && !hasMarker(root, entry.Name()) {
				_ = os.Remove(filepath.Join(root, entry.Name())) // removes only an empty directory
			}
			continue
		}
		var w Worktree
		text, readErr := safefile.Read(filepath.Join(root, entry.Name()), maxMarker)
		if readErr == nil {
			w, readErr = parseMarker(text, filepath.Join(root, name))
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		all = append(all, w)
	}
	return all, err
}

// parseMarker parses the marker file of the worktree at path.
func parseMarker(text []byte, path string) (w Worktree, err error) {
	if err := json.Unmarshal(text, &w); err != nil {
		return w, err
	}
	if w.Path != path {
		return w, fmt.Errorf("the marker file of worktree %q belongs to another directory", path)
	}
	return w, nil
}

func hasMarker(root, name string) bool {
	_, err := os.Lstat(filepath.Join(root, markerPrefix+name+markerSuffix))
	return err == nil
}

// undo removes a worktree that add has created completely or in part, and in which nobody has
// worked. It also deletes a branch that was created for it, unless the branch has changed.
func (p program) undo(ctx context.Context, w Worktree) error {
	// The second --force removes a worktree that is locked because it is being created.
	_, gitErr := p.run(ctx, w.Repository, "worktree", "remove", "--force", "--force", "--", w.Path)
	if err := os.RemoveAll(w.Path); err != nil {
		return err
	}
	if gitErr != nil && !isNonZeroExit(gitErr) {
		return gitErr
	}
	if w.Made {
		p.deleteBranch(ctx, w, w.Base)
	}
	return nil
}

// reclaim is like undo, for a worktree from Unconfirmed: somebody else may have found it meanwhile
// and worked there. If there is anything to lose, it fails with a *LossError.
func (p program) reclaim(ctx context.Context, w Worktree) error {
	l, err := p.losses(ctx, w)
	// git may not have checked out all files, and commits are on the branch, which undo deletes only
	// without any.
	l.Deleted, l.Commits = 0, 0
	switch {
	case err != nil && !isNonZeroExit(err): // git exits with an error in an incomplete worktree
		return err
	case err == nil && l.Any():
		return &LossError{w, l}
	}
	return p.undo(ctx, w)
}

// deleteBranch deletes the worktree's branch if it is at this commit. git refuses if another
// worktree has checked it out.
func (p program) deleteBranch(ctx context.Context, w Worktree, commit string) {
	at, err := p.runLine(ctx, w.Repository, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
	if err == nil && at == commit {
		_, _ = p.run(ctx, w.Repository, "branch", "--quiet", "-D", "--", w.Branch)
	}
}
