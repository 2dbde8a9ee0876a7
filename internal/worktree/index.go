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

// timestamp is a time of a file.
type timestamp struct{ sec, nsec int64 }

// indexEntry is an entry of git's index.
type indexEntry struct {
	path, mode, blob string
	sparse           bool // the file may be missing: git does not check it out
	intended         bool // added without its content (git add --intent-to-add)
	staged           bool // differs from HEAD; set by tracked, for submodules only

	// The state of the file when git last saw it with the content of the blob.
	mtime, ctime timestamp
	inode, size  uint32
}

// submodule is the mode of the entry of a submodule.
const submodule = "160000"

// intentToAdd is a flag of an entry, as git ls-files --debug prints it.
const intentToAdd = 1 << 29

// parseIndex parses the output of git ls-files -v --stage --debug -z: "TAG MODE BLOB
// STAGE<tab>PATH<NUL>", then lines that begin with two spaces. The format of these lines is not
// documented; if they cannot be parsed, the content of the file is compared. Entries with a path
// outside the worktree are skipped.
func parseIndex(out string) iter.Seq[indexEntry] {
	return func(yield func(indexEntry) bool) {
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
			e := indexEntry{path: path, mode: fields[1], blob: fields[2], sparse: fields[0] == "S" || fields[0] == "s"}
			if !yield(e.withDebug(debug)) {
				return
			}
		}
	}
}

// withDebug returns the entry with the values from the lines of --debug.
func (e indexEntry) withDebug(lines string) indexEntry {
	with := e
	var device, uid, gid, flags uint32
	const format = "  ctime: %d:%d\n  mtime: %d:%d\n  dev: %d\tino: %d\n  uid: %d\tgid: %d\n  size: %d\tflags: %x\n"
	_, err := fmt.Sscanf(lines, format, &with.ctime.sec, &with.ctime.nsec, &with.mtime.sec, &with.mtime.nsec,
		&device, &with.inode, &uid, &gid, &with.size, &flags)
	if err != nil {
		return e
	}
	with.intended = flags&intentToAdd != 0
	return with
}

// tracked counts the tracked files that differ from HEAD, in the index or in the worktree, and
// returns the submodules. It compares the contents itself: git would run the clean filters that the
// repository names, and would skip files that are marked as unchanged in the index.
func (p program) tracked(ctx context.Context, dir, gitDir string, l *Losses) (links []indexEntry, err error) {
	staged, err := p.staged(ctx, dir, l)
	if err != nil {
		return nil, err
	}
	out, err := p.run(ctx, dir, "ls-files", "-v", "--stage", "--debug", "-z")
	if err != nil {
		return nil, err
	}
	var written timestamp // when the index was written
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(gitDir, "index"), &st); err == nil {
		written = timestampOf(st.Mtim)
	}
	var maybeConverted []string
	for e := range parseIndex(out) {
		if e.mode == submodule {
			// In a conflict, the index has an entry for each side.
			if !slices.ContainsFunc(links, func(other indexEntry) bool { return other.path == e.path }) {
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
			maybeConverted = append(maybeConverted, e.path)
		case unchanged:
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the comparison of the files of %q takes too long: %w", dir, ctx.Err())
		}
	}
	n, err := p.countUnconverted(ctx, dir, maybeConverted)
	l.Changes += n
	return links, err
}

// staged counts the differences between the index and HEAD, and returns the paths of those that are
// still in the index.
func (p program) staged(ctx context.Context, dir string, l *Losses) (map[string]bool, error) {
	out, err := p.run(ctx, dir, "diff-index", "--cached", "--name-status", "-z", "--no-renames",
		"--ignore-submodules=dirty", "HEAD", "--")
	staged := map[string]bool{}
	for record := range records(out, 2) {
		status, path := record[0], record[1]
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

// records parses output of git that consists of groups of n strings, each string terminated by NUL.
func records(out string, n int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		fields := strings.Split(out, "\x00")
		for record := range slices.Chunk(fields[:len(fields)-1], n) {
			if len(record) < n || !yield(record) {
				return
			}
		}
	}
}

// comparison is the result of comparing a file with its index entry.
type comparison int

const (
	unchanged comparison = iota
	changed
	missing
	converted // unchanged if git converts the content on checkout, else changed
)

// compare compares a file with its index entry. A file with the size and times that git recorded is
// unchanged; otherwise the content is compared, without conversion. So a file that git converts,
// and that was touched without git noticing, counts as changed.
func (e indexEntry) compare(path string, written timestamp) comparison {
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
	mtime := timestampOf(st.Mtim)
	seen := mtime == e.mtime && uint32(st.Ino) == e.inode && uint32(st.Size) == e.size
	// A change after the index was written may have left the same time.
	late := mtime.sec > written.sec || mtime.sec == written.sec && mtime.nsec >= written.nsec
	if seen && timestampOf(st.Ctim) == e.ctime && !late {
		return unchanged
	}
	switch same, err := e.hasContent(path, st); {
	case err != nil:
		return changed
	case same:
		return unchanged
	case seen && e.hasMode(st):
		return converted
	}
	return changed
}

func (e indexEntry) hasMode(st unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return e.mode == "100755" == (st.Mode&unix.S_IXUSR != 0) && e.mode != "120000"
	case unix.S_IFLNK:
		return e.mode == "120000"
	}
	return false
}

// hasContent reports whether the file has the mode of the entry and the content of its blob.
func (e indexEntry) hasContent(path string, st unix.Stat_t) (bool, error) {
	if !e.hasMode(st) {
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

// countUnconverted returns how many of the files have no attribute that makes git convert their
// content.
func (p program) countUnconverted(ctx context.Context, dir string, paths []string) (n int, err error) {
	const maxPaths = 500 // per command
	command := []string{"check-attr", "-z", "filter", "eol", "working-tree-encoding", "ident", "--"}
	for files := range slices.Chunk(paths, maxPaths) {
		out, err := p.run(ctx, dir, slices.Concat(command, files)...)
		if err != nil {
			return 0, err
		}
		has := map[string]bool{}
		for record := range records(out, 3) {
			if path, value := record[0], record[2]; value != "unspecified" && value != "unset" {
				has[path] = true
			}
		}
		n += len(files) - len(has)
	}
	return n, nil
}

func timestampOf(t unix.Timespec) timestamp { return timestamp{t.Sec, t.Nsec} }
