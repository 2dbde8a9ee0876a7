// Package trust records which scripts of repositories a user has approved. Corral executes them for
// new worktrees. An approval is for exactly one content of one script in one repository: neither an
// agent nor a commit that changes the script can make Corral execute the new one.
package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// The paths of the scripts in a worktree: one sets it up, the other tears it down.
const (
	Setup    = ".corral/setup"
	Teardown = ".corral/teardown"
)

// maxScript is the maximum size of a script, maxApproval that of the record of an approval, in
// bytes.
const (
	maxScript   = 1 << 20
	maxApproval = 64 << 10
)

// Script is a script of a repository, with its content when it was read.
type Script struct {
	Repository string // resolved path of the directory of the repository
	Name       string // Setup or Teardown
	Content    []byte
}

// Read reads a script in a worktree of the repository in a directory. The error is fs.ErrNotExist
// if there is none.
func Read(repository, worktree, name string) (s Script, err error) {
	if path, err := filepath.EvalSymlinks(repository); err == nil {
		repository = path
	}
	s.Repository, s.Name = repository, name
	s.Content, err = safefile.ReadLinked(filepath.Join(worktree, name), maxScript)
	if err == nil && len(s.Content) == 0 { // it is empty, or a link to /dev/null
		err = fs.ErrNotExist
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return s, err
}

// Approvals is the directory of the approvals: $XDG_STATE_HOME/corral/trusted. It contains a file
// for each of them, whose name is a hash of what was approved.
type Approvals string

// Approval is the record of an approval.
type Approval struct {
	Repository string
	Script     string    // Setup or Teardown
	SHA256     string    // of the content, in hexadecimal digits
	Approved   time.Time // when
}

// path returns the path of the file that the approval of a script has.
func (a Approvals) path(s Script) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", s.Repository, s.Name, s.Content))
	return filepath.Join(string(a), hex.EncodeToString(sum[:]))
}

// Has reports whether the user has approved exactly this script.
func (a Approvals) Has(s Script) bool {
	info, err := os.Lstat(a.path(s))
	return err == nil && info.Mode().IsRegular()
}

// Add approves a script.
func (a Approvals) Add(s Script, now time.Time) error {
	sum := sha256.Sum256(s.Content)
	text, err := json.Marshal(Approval{s.Repository, s.Name, hex.EncodeToString(sum[:]), now.UTC().Truncate(time.Second)})
	if err == nil {
		err = os.MkdirAll(string(a), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(a.path(s), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot record the approval of %s: %w", s.Name, err)
	}
	return nil
}

// List returns all approvals, by repository, script and time. It ignores files that are none.
func (a Approvals) List() ([]Approval, error) {
	var all []Approval
	err := a.visit(func(_ string, found Approval) error {
		all = append(all, found)
		return nil
	})
	slices.SortFunc(all, func(x, y Approval) int {
		return cmp.Or(cmp.Compare(x.Repository, y.Repository), cmp.Compare(x.Script, y.Script),
			x.Approved.Compare(y.Approved))
	})
	return all, err
}

// Remove removes all approvals for a repository, and returns how many there were.
func (a Approvals) Remove(repository string) (n int, err error) {
	err = a.visit(func(path string, found Approval) error {
		if found.Repository != repository {
			return nil
		}
		n++
		return os.Remove(path)
	})
	return n, err
}

func (a Approvals) visit(f func(path string, found Approval) error) error {
	entries, err := os.ReadDir(string(a))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the approvals: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(string(a), entry.Name())
		var found Approval
		text, err := safefile.Read(path, maxApproval)
		if err != nil || json.Unmarshal(text, &found) != nil {
			continue
		}
		if err := f(path, found); err != nil {
			return err
		}
	}
	return nil
}
