package program

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/corrald/corral/internal/links"
)

// LastChanged returns when the file of a program was last replaced or written: the latest change of
// the file itself and of the symbolic links on the way to it. An installer that keeps several
// versions replaces only such a link. A relative path is relative to dir. The time is that of the
// last status change (st_ctim): an installed file often has the time of modification that its
// archive records.
func LastChanged(path, dir string) (time.Time, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var latest time.Time
	_, err := links.Follow(path, func(_ string, info fs.FileInfo, isLast bool) error {
		isLink := info.Mode()&fs.ModeSymlink != 0
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (isLink || isLast) {
			if changed := time.Unix(st.Ctim.Unix()); changed.After(latest) {
				latest = changed
			}
		}
		return nil
	})
	if err != nil {
		return time.Time{}, err
	}
	return latest, nil
}
