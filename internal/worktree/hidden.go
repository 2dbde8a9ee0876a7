package worktree

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// hiddenFile is a file that git was told not to look at.
type hiddenFile struct {
	blob, path string
	sparse     bool // it may be missing: a sparse checkout leaves it out
}

// hidden counts changes of files that git was told not to look at, by git-update-index(1), --assume-unchanged or --skip-worktree: its status does not have them.
func (g Git) hidden(ctx context.Context, dir string, l *Losses) error {
	out, err := g.run(ctx, dir, "ls-files", "-v", "--stage", "-z")
	if err != nil {
		return err
	}
	var there []hiddenFile
	for _, f := range hiddenFiles(out) {
		if exists(filepath.Join(dir, f.path)) {
			there = append(there, f)
		} else if !f.sparse {
			l.Deleted++
		}
	}
	const most = 500 // in one command
	for files := range slices.Chunk(there, most) {
		args := []string{"hash-object", "--"}
		for _, f := range files {
			args = append(args, f.path)
		}
		out, err := g.line(ctx, dir, args...)
		if err != nil {
			return err
		}
		for i, blob := range strings.Split(out, "\n") {
			if i < len(files) && blob != files[i].blob {
				l.Changes++
			}
		}
	}
	return nil
}

// hiddenFiles reads what git ls-files -v --stage -z prints, "TAG MODE BLOB STAGE<tab>PATH": the tag is a small letter for a file that is assumed to be unchanged, and S
// for one that is skipped. Symbolic links and submodules are left out.
func hiddenFiles(out string) []hiddenFile {
	var all []hiddenFile
	for entry := range strings.SplitSeq(out, "\x00") {
		about, path, ok := strings.Cut(entry, "\t")
		fields := strings.Split(about, " ")
		if !ok || len(fields) != 4 || len(fields[0]) != 1 || !strings.HasPrefix(fields[1], "100") || !filepath.IsLocal(path) {
			continue
		}
		tag := fields[0][0]
		if sparse := tag == 'S' || tag == 's'; sparse || tag >= 'a' && tag <= 'z' {
			all = append(all, hiddenFile{fields[2], path, sparse})
		}
	}
	return all
}
