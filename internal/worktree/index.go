package worktree

import (
	"context"
	"crypto/sha1" //nolint:gosec // an object id of git's
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/safefile"
)

// stamp is a time of a file.
type stamp struct{ sec, nsec int64 }

// indexed is an entry of git's index.
type indexed struct {
	path, mode, blob string
	sparse           bool // the file may be missing: git was told to leave it out
	intended         bool // added without its content (git add --intent-to-add)
	staged           bool // it differs from HEAD: tracked sets this for submodules

	// What the file was like when git last saw it with the content of the blob.
	mtime, ctime stamp
	inode, size  uint32
}

// submodule is the mode of an entry that is a submodule.
const submodule = "160000"

// intentToAdd is a flag of an entry, as git ls-files --debug prints it.
const intentToAdd = 1 << 29

// index reads what git ls-files -v --stage --debug -z prints: "TAG MODE BLOB STAGE<tab>PATH<NUL>",
// then lines that begin with two spaces. git promises nothing of those lines: where they cannot be
// read, the file's content is compared. No path leads out of the worktree.
func index(out string) iter.Seq[indexed] {
	return func(yield func(indexed) bool) {
		for out != "" {
			about, rest, _ := strings.Cut(out, "\t")
			path, more, ok := strings.Cut(rest, "\x00")
			if !ok {
				return
			}
			debug := more
			for strings.HasPrefix(more, "  ") {
				_, more, _ = strings.Cut(more, "\n")
			}
			debug, out = debug[:len(debug)-len(more)], more
			fields := strings.Split(about, " ")
			if len(fields) != 4 || !filepath.IsLocal(path) {
				continue
			}
			e := indexed{path: path, mode: fields[1], blob: fields[2], sparse: fields[0] == "S" || fields[0] == "s"}
			if !yield(e.withDebug(debug)) {
				return
			}
		}
	}
}

// withDebug returns the entry with what the lines of --debug say of it.
func (e indexed) withDebug(lines string) indexed {
	with := e
	var device, uid, gid, flags uint32
	_, err := fmt.Sscanf(lines, "  ctime: %d:%d\n  mtime: %d:%d\n  dev: %d\tino: %d\n  uid: %d\tgid: %d\n  size: %d\tflags: %x\n",
		&with.ctime.sec, &with.ctime.nsec, &with.mtime.sec, &with.mtime.nsec, &device, &with.inode, &uid, &gid, &with.size, &flags)
	if err != nil {
		return e
	}
	with.intended = flags&intentToAdd != 0
	return with
}

// tracked counts the tracked files that differ from HEAD, in the index or in the worktree, and
// returns the submodules. It compares the content itself: git would run the clean filters that the
// repository names, and skip the files that it was told not to look at.
func (p program) tracked(ctx context.Context, dir, gitDir string, l *Losses) (links []indexed, err error) {
	staged, err := p.staged(ctx, dir, l)
	if err != nil {
		return nil, err
	}
	out, err := p.run(ctx, dir, "ls-files", "-v", "--stage", "--debug", "-z")
	if err != nil {
		return nil, err
	}
	var written stamp // of the index
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(gitDir, "index"), &st); err == nil {
		written = stampOf(st.Mtim)
	}
	var unsure []string
	for e := range index(out) {
		if e.mode == submodule {
			if !slices.ContainsFunc(links, func(other indexed) bool { return other.path == e.path }) { // in a conflict, each side has it
				e.staged = staged[e.path]
				links = append(links, e)
			}
			continue
		}
		if staged[e.path] {
			continue
		}
		switch e.compare(filepath.Join(dir, e.path), written) {
		case missing:
			l.Deleted++
		case changed:
			l.Changes++
		case converted:
			unsure = append(unsure, e.path)
		case unchanged:
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the comparison of the files of %q takes too long: %w", dir, ctx.Err())
		}
	}
	n, err := p.unconverted(ctx, dir, unsure)
	l.Changes += n
	return links, err
}

// staged counts what the index has different from HEAD, and returns the paths of what is still in
// the index.
func (p program) staged(ctx context.Context, dir string, l *Losses) (map[string]bool, error) {
	out, err := p.run(ctx, dir, "diff-index", "--cached", "--name-status", "-z", "--no-renames", "--ignore-submodules=dirty", "HEAD", "--")
	staged := map[string]bool{}
	for status, path := range pairs(out) {
		switch {
		case status == "D":
			l.Deleted++
		case !staged[path]:
			staged[path] = true
			l.Changes++
		}
	}
	return staged, err
}

// pairs reads what git prints as two strings each, with NULs.
func pairs(out string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for out != "" {
			first, rest, _ := strings.Cut(out, "\x00")
			second, more, ok := strings.Cut(rest, "\x00")
			if !ok || !yield(first, second) {
				return
			}
			out = more
		}
	}
}

// likeness is what a file is, compared with its entry in the index.
type likeness int

const (
	unchanged likeness = iota
	changed
	missing
	converted // unchanged if git converts the file's content when it checks it out, changed if not
)

// compare compares a file with its entry. A file that git has not checked out again since it saw it
// with the blob's content is unchanged; of any other one the content is compared as it is. So a
// file that git converts and that was touched without git's seeing it counts as changed.
func (e indexed) compare(path string, written stamp) likeness {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		if e.sparse {
			return unchanged
		}
		return missing
	case err != nil || e.intended:
		return changed
	}
	mtime := stampOf(st.Mtim)
	seen := mtime == e.mtime && uint32(st.Ino) == e.inode && uint32(st.Size) == e.size
	late := mtime.sec > written.sec || mtime.sec == written.sec && mtime.nsec >= written.nsec // a change after that may have the same time
	if seen && stampOf(st.Ctim) == e.ctime && !late {
		return unchanged
	}
	switch same, err := e.sameContent(path, st); {
	case err != nil:
		return changed
	case same:
		return unchanged
	case seen && e.sameMode(st):
		return converted
	}
	return changed
}

func (e indexed) sameMode(st unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return e.mode == "100755" == (st.Mode&unix.S_IXUSR != 0) && e.mode != "120000"
	case unix.S_IFLNK:
		return e.mode == "120000"
	}
	return false
}

// sameContent tells whether the file has the mode of the entry and the content of its blob.
func (e indexed) sameContent(path string, st unix.Stat_t) (bool, error) {
	if !e.sameMode(st) {
		return false, nil
	}
	h := sha1.New() //nolint:gosec // an object id of git's
	if len(e.blob) == hex.EncodedLen(sha256.Size) {
		h = sha256.New()
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := os.Readlink(path)
		_, _ = fmt.Fprintf(h, "blob %d\x00%s", len(target), target)
		return err == nil && hex.EncodeToString(h.Sum(nil)) == e.blob, err
	}
	f, err := safefile.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	_, _ = fmt.Fprintf(h, "blob %d\x00", st.Size)
	if _, err := io.CopyN(h, f, st.Size); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == e.blob, nil
}

// unconverted returns how many of the files have an attribute by which git converts their content
// neither way.
func (p program) unconverted(ctx context.Context, dir string, paths []string) (n int, err error) {
	const most = 500 // in one command
	for files := range slices.Chunk(paths, most) {
		out, err := p.run(ctx, dir, slices.Concat([]string{"check-attr", "-z", "filter", "eol", "working-tree-encoding", "ident", "--"}, files)...)
		if err != nil {
			return 0, err
		}
		has := map[string]bool{}
		for path, more := range triples(out) {
			if value := more[1]; value != "unspecified" && value != "unset" {
				has[path] = true
			}
		}
		n += len(files) - len(has)
	}
	return n, nil
}

// triples reads what git prints as three strings each, with NULs.
func triples(out string) iter.Seq2[string, [2]string] {
	return func(yield func(string, [2]string) bool) {
		for fields := range slices.Chunk(strings.Split(out, "\x00"), 3) {
			if len(fields) < 3 || !yield(fields[0], [2]string{fields[1], fields[2]}) {
				return
			}
		}
	}
}

func stampOf(t unix.Timespec) stamp { return stamp{t.Sec, t.Nsec} }
