package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/safefile"
)

// The errors about what a diff is asked for: the directory is in no working tree of git; no commit
// has this name; it and the working tree have no merge base.
var (
	ErrNoRepository    = errors.New("not in a git repository")
	ErrUnknownRevision = errors.New("unknown revision")
	ErrNoMergeBase     = errors.New("no merge base")
)

// Diff compares a working tree, with its untracked files, with the commit at which its branch left
// another one. Git executes nothing that the repository names, and nothing is written to the
// repository: untracked files are added to a copy of its index.
type Diff struct {
	Base    string // the commit, or the empty tree
	Unborn  bool   // there is no commit yet
	Against string // what it is the merge base with, for people; "" where it is HEAD itself
	Top     string // the working tree
	Pager   string // that the user's configuration of git names, not the repository's; "" for none

	git    program
	set    []string // variables for git
	copied string   // the directory of the copy of the index
}

// NewDiff prepares the comparison of the working tree that dir is in. It is called in the process
// of the user, whose environment git gets. A revision replaces the branch that is compared with.
// Untracked files are those in dir, or with whole in all of the working tree. Close must be called.
// Errors: ErrNoGit, ErrNoRepository, git's own words.
func NewDiff(ctx context.Context, environment []string, dir, revision string, whole bool) (*Diff, error) {
	d := &Diff{git: program{environment: environment}}
	var err error
	if d.Top, err = d.git.line(ctx, dir, "rev-parse", "--show-toplevel"); err != nil {
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

func notInRepository(err error) error {
	var failed *gitError
	if errors.As(err, &failed) && (strings.Contains(failed.says, "not a git repository") || strings.Contains(failed.says, "must be run in a work tree")) {
		return ErrNoRepository
	}
	return err
}

// Close removes the copy of the index.
func (d *Diff) Close() error {
	if d.copied == "" {
		return nil
	}
	return os.RemoveAll(d.copied)
}

// Write has git print the changes. Options are those of git diff.
func (d *Diff) Write(ctx context.Context, out io.Writer, options ...string) error {
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short", "--ignore-submodules=dirty"}
	return d.run(ctx, nil, out, slices.Concat(args, options, []string{d.Base, "--"})...)
}

// run runs a command of git with the copy of the index.
func (d *Diff) run(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	set := append(slices.Clone(d.set), "GIT_INDEX_FILE="+filepath.Join(d.copied, "index"))
	cmd, err := d.git.command(ctx, d.Top, set, append(slices.Clone(quiet), "-c", "core.splitIndex=false"), args)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := cmd.Run(); err != nil {
		return &gitError{args[0], complaint(said.String()), err}
	}
	return nil
}

// configure finds the user's pager, and sets the variables with which git runs none of the filters
// that the configuration of the repository itself defines: they convert files to be compared.
// Filters of the user and of the system are run.
func (d *Diff) configure(ctx context.Context) error {
	list, err := d.git.run(ctx, d.Top, "config", "--null", "--show-scope", "--list")
	if err != nil {
		return err
	}
	trusted, replaced := map[string]string{}, map[string]bool{}
	words := strings.Split(list, "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		key, value, _ := strings.Cut(words[i+1], "\n")
		switch words[i] {
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
	d.set = slices.Clone(offline)
	n := 0
	for key, is := range replaced {
		if is {
			d.set = append(d.set, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, trusted[key]))
			n++
		}
	}
	d.set = append(d.set, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	return nil
}

// findBase decides on the commit to compare with.
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
		d.Base, err = d.git.line(ctx, d.Top, "hash-object", "-t", "tree", os.DevNull)
		return err
	}
	branches, err := d.origins(ctx)
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
	base, err := d.git.line(ctx, d.Top, "merge-base", commit, head)
	if refused(err) || err == nil && base == "" {
		return fmt.Errorf("%w with %q: their histories share no commit", ErrNoMergeBase, revision)
	}
	d.Base, d.Against = base, revision
	return err
}

// commit returns the id of a commit, "" if there is none by that name.
func (d *Diff) commit(ctx context.Context, revision string) (string, error) {
	if strings.HasPrefix(revision, "-") {
		return "", nil
	}
	id, err := d.git.line(ctx, d.Top, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if refused(err) {
		return "", nil
	}
	return id, err
}

// origins returns what the branch of the working tree may have begun with, the likeliest first: for
// a linked worktree what the main working tree has checked out; the default branch; that of the
// remote.
func (d *Diff) origins(ctx context.Context) ([]string, error) {
	current, err := d.git.line(ctx, d.Top, "rev-parse", "--abbrev-ref", "HEAD")
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
					all = slices.Insert(all, 0, name) // the branch is named after the commit
				}
			}
		}
	}
	remote, err := d.git.line(ctx, d.Top, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
	if err != nil && !refused(err) {
		return nil, err
	}
	all = append(all, strings.TrimPrefix(remote, "origin/"), "main", "master", remote)
	return slices.DeleteFunc(all, func(name string) bool { return name == "" || name == current }), nil
}

// maxIndex bounds what is copied of an index, in bytes.
const maxIndex = 1 << 30

// copyIndex copies the index, and adds the untracked files in dir to the copy, without their
// content.
func (d *Diff) copyIndex(ctx context.Context, dir string) error {
	path, err := d.git.line(ctx, d.Top, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return err
	}
	index, err := safefile.Read(path, maxIndex)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := err == nil
	if d.copied, err = os.MkdirTemp("", "corralctl-diff-"); err != nil {
		return err
	}
	if there {
		f, err := safefile.OpenFile(filepath.Join(d.copied, "index"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(index)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	untracked, err := d.git.run(ctx, dir, "ls-files", "--others", "--exclude-standard", "--full-name", "-z")
	if err != nil || untracked == "" {
		return err
	}
	empty, err := d.git.line(ctx, d.Top, "hash-object", "--no-filters", os.DevNull)
	if err != nil {
		return err
	}
	var entries bytes.Buffer
	for file := range strings.SplitSeq(strings.TrimSuffix(untracked, "\x00"), "\x00") {
		if !strings.HasSuffix(file, "/") { // a repository of its own
			fmt.Fprintf(&entries, "100644 %s 0\t%s\x00", empty, file)
		}
	}
	return d.run(ctx, &entries, io.Discard, "update-index", "-z", "--add", "--index-info")
}
