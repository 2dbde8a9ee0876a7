package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/safefile"
)

// Errors of NewDiff: the directory is not in a working tree of git; no commit has this name; this
// commit and the working tree have no merge base.
var (
	ErrNoRepository    = errors.New("not in a git repository")
	ErrUnknownRevision = errors.New("unknown revision")
	ErrNoMergeBase     = errors.New("no merge base")
)

// Diff compares a working tree, including its untracked files, with the commit at which its branch
// left another branch. git runs no program that the repository names and writes nothing to the
// repository: untracked files are added to a copy of its index.
type Diff struct {
	Base   string // ID of the commit, or of the empty tree
	Unborn bool   // the repository has no commit yet
	// Against is the branch or revision whose merge base with HEAD is Base, for display; "" if Base is
	// HEAD itself.
	Against string
	Top     string // top directory of the working tree
	Pager   string // from the user's configuration of git, not the repository's; "" for none

	git       program
	variables []string // environment variables for git
	indexDir  string   // directory of the copy of the index
}

// NewDiff prepares the comparison of the working tree that contains dir. It runs in the user's
// process and passes the environment to git. If revision is not "", it replaces the branch to
// compare with. Untracked files are those in dir or, with whole, in all of the working tree. The
// caller must call Close. Errors: ErrNoGit, ErrNoRepository, ErrUnknownRevision, ErrNoMergeBase,
// errors of git.
func NewDiff(ctx context.Context, environment []string, dir, revision string, whole bool) (*Diff, error) {
	d := &Diff{git: program{environment: environment}}
	var err error
	if d.Top, err = d.git.runLine(ctx, dir, "rev-parse", "--show-toplevel"); err != nil {
		return nil, notInRepository(err)
	}
	if err := d.configure(ctx); err != nil {
		return nil, err
	}
	if err := d.findBase(ctx, revision); err != nil {
		return nil, err
	}
	if whole {
		dir = d.Top
	}
	if err := d.copyIndex(ctx, dir); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// Locate returns the git directory of the repository that contains dir, which all of its worktrees
// share, and the top directory of the working tree. It runs in the user's process and passes the
// environment to git. Errors: ErrNoGit, ErrNoRepository, errors of git.
func Locate(ctx context.Context, environment []string, dir string) (repository, top string, err error) {
	p := program{environment: environment}
	repository, err = p.runLine(ctx, dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err == nil {
		top, err = p.runLine(ctx, dir, "rev-parse", "--show-toplevel")
	}
	return repository, top, notInRepository(err)
}

func notInRepository(err error) error {
	var failed *gitError
	if errors.As(err, &failed) && (strings.Contains(failed.message, "not a git repository") ||
		strings.Contains(failed.message, "must be run in a work tree")) {
		return ErrNoRepository
	}
	return err
}

// Close removes the copy of the index.
func (d *Diff) Close() error {
	if d.indexDir == "" {
		return nil
	}
	return os.RemoveAll(d.indexDir)
}

// Write makes git print the changes. The options are those of git diff.
func (d *Diff) Write(ctx context.Context, out io.Writer, options ...string) error {
	args := []string{
		"diff", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short", "--ignore-submodules=dirty",
	}
	return d.run(ctx, nil, out, slices.Concat(args, options, []string{d.Base, "--"})...)
}

// run runs a git command with the copy of the index.
func (d *Diff) run(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	variables := append(slices.Clone(d.variables), "GIT_INDEX_FILE="+filepath.Join(d.indexDir, "index"))
	options := append(slices.Clone(safeOptions), "-c", "core.splitIndex=false")
	cmd, err := d.git.command(ctx, d.Top, variables, options, args)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	if err := cmd.Run(); err != nil {
		return &gitError{args[0], errorMessage(stderr.String()), err}
	}
	return nil
}

// configure reads the user's pager, and sets variables that disable filters which the repository's
// own configuration defines, since filters run when files are compared. Filters of the user and of
// the system still run.
func (d *Diff) configure(ctx context.Context) error {
	list, err := d.git.run(ctx, d.Top, "config", "--null", "--show-scope", "--list")
	if err != nil {
		return err
	}
	trusted, replaced := map[string]string{}, map[string]bool{}
	for record := range records(list, 2) {
		key, value, _ := strings.Cut(record[1], "\n")
		switch record[0] {
		case "system", "global":
			trusted[key] = value
		case "local", "worktree":
			replaced[key] = replaced[key] || strings.HasPrefix(key, "filter.")
		}
	}
	d.Pager = trusted["core.pager"]
	if own := trusted["pager.diff"]; !slices.Contains([]string{"", "true", "false"}, own) {
		d.Pager = own
	}
	d.variables = slices.Clone(offlineEnvironment)
	n := 0
	for key, isFilter := range replaced {
		if isFilter {
			d.variables = append(d.variables,
				fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, trusted[key]))
			n++
		}
	}
	d.variables = append(d.variables, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	return nil
}

// findBase sets the commit to compare with.
func (d *Diff) findBase(ctx context.Context, revision string) error {
	head, err := d.commit(ctx, "HEAD")
	if err != nil {
		return err
	}
	if revision != "" {
		return d.mergeBase(ctx, head, revision)
	}
	if head == "" {
		d.Unborn = true
		d.Base, err = d.git.runLine(ctx, d.Top, "hash-object", "-t", "tree", os.DevNull)
		return err
	}
	branches, err := d.baseBranches(ctx)
	if err != nil {
		return err
	}
	for _, branch := range branches {
		err := d.mergeBase(ctx, head, branch)
		if !errors.Is(err, ErrUnknownRevision) && !errors.Is(err, ErrNoMergeBase) {
			return err
		}
	}
	d.Base = head
	return nil
}

func (d *Diff) mergeBase(ctx context.Context, head, revision string) error {
	commit, err := d.commit(ctx, revision)
	switch {
	case err != nil:
		return err
	case commit == "":
		return fmt.Errorf("%w %q", ErrUnknownRevision, revision)
	case head == "":
		return fmt.Errorf("%w with %q: the working tree has no commit yet", ErrNoMergeBase, revision)
	}
	base, err := d.git.runLine(ctx, d.Top, "merge-base", commit, head)
	if isNonZeroExit(err) || err == nil && base == "" {
		return fmt.Errorf("%w with %q: their histories share no commit", ErrNoMergeBase, revision)
	}
	d.Base, d.Against = base, revision
	return err
}

// commit returns the ID of a commit, "" if none has this name.
func (d *Diff) commit(ctx context.Context, revision string) (string, error) {
	if strings.HasPrefix(revision, "-") {
		return "", nil
	}
	id, err := d.git.runLine(ctx, d.Top, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if isNonZeroExit(err) {
		return "", nil
	}
	return id, err
}

// baseBranches returns the branches from which the branch of the working tree may have been
// created, the most likely first: for a linked worktree the branch of the main working tree, then
// the default branch, locally and on the remote.
func (d *Diff) baseBranches(ctx context.Context) ([]string, error) {
	current, err := d.git.runLine(ctx, d.Top, "rev-parse", "--abbrev-ref", "HEAD")
	if err != nil {
		return nil, err
	}
	var all []string
	own, common, err := d.git.gitDirs(ctx, d.Top)
	if err != nil {
		return nil, err
	}
	if own != common {
		list, err := d.git.run(ctx, d.Top, "worktree", "list", "--porcelain")
		if err != nil {
			return nil, err
		}
		main, _, _ := strings.Cut(list, "\n\n")
		for line := range strings.Lines(main) {
			for _, prefix := range []string{"branch refs/heads/", "HEAD "} {
				if name, is := strings.CutPrefix(strings.TrimSpace(line), prefix); is {
					all = slices.Insert(all, 0, name) // git prints the branch after the commit
				}
			}
		}
	}
	remote, err := d.git.runLine(ctx, d.Top, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
	if err != nil && !isNonZeroExit(err) {
		return nil, err
	}
	all = append(all, strings.TrimPrefix(remote, "origin/"), "main", "master", remote)
	return slices.DeleteFunc(all, func(name string) bool { return name == "" || name == current }), nil
}

// maxIndex is the maximum size of an index to copy, in bytes.
const maxIndex = 1 << 30

// copyIndex copies the index, and adds the untracked files in dir to the copy without their
// content. The copy has the modification time of the index, or an earlier one: git compares the
// content of files that were modified in the same second as the index was written, or later. See
// racy-git in git's technical documentation.
func (d *Diff) copyIndex(ctx context.Context, dir string) error {
	path, err := d.git.runLine(ctx, d.Top, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return err
	}
	info, statErr := os.Lstat(path) // before it is read: it may be replaced meanwhile
	index, err := safefile.Read(path, maxIndex)
	if err = cmp.Or(statErr, err); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := err == nil
	if d.indexDir, err = os.MkdirTemp("", "corralctl-diff-"); err != nil {
		return err
	}
	if there {
		written := filepath.Join(d.indexDir, "index")
		f, err := safefile.OpenFile(written, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(index)
		if err = errors.Join(err, f.Close(), os.Chtimes(written, time.Time{}, info.ModTime())); err != nil {
			return err
		}
	}
	untracked, err := d.git.run(ctx, dir, "ls-files", "--others", "--exclude-standard", "--full-name", "-z")
	if err != nil || untracked == "" {
		return err
	}
	empty, err := d.git.runLine(ctx, d.Top, "hash-object", "--no-filters", os.DevNull)
	if err != nil {
		return err
	}
	var entries bytes.Buffer
	for file := range strings.SplitSeq(strings.TrimSuffix(untracked, "\x00"), "\x00") {
		if !strings.HasSuffix(file, "/") { // a directory is another repository
			fmt.Fprintf(&entries, "100644 %s 0\t%s\x00", empty, file)
		}
	}
	return d.run(ctx, &entries, io.Discard, "update-index", "-z", "--add", "--index-info")
}
