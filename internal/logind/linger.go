package logind

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
)

// lingerDir is the directory in which the login manager keeps an empty file for each user with
// lingering enabled. It can be read without permission to call the login manager, and without
// waiting for it.
const lingerDir = "/var/lib/systemd/linger"

// IsLingering reports whether lingering is enabled for this user: the user's service manager, with
// everything that it runs, then keeps running after the user's last logout. See enable-linger in
// loginctl(1).
func IsLingering() bool {
	path, err := lingerFile()
	return err == nil && exists(path)
}

func lingerFile() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("cannot determine the user name: %w", err)
	}
	return filepath.Join(lingerDir, escapeUserName(u.Username)), nil
}

// escapeUserName returns the file name that the login manager uses for a user. Backslashes, quotes
// and bytes that are not ASCII are escaped as in C: the name of a domain's user may contain them
// (EXAMPLE\anna).
func escapeUserName(user string) string {
	var b strings.Builder
	for i := range len(user) {
		switch c := user[i]; {
		case strings.IndexByte(`\"'`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// SetLinger makes the login manager enable or disable lingering for this user. A person may be
// asked for a password if the policy requires that and an authentication agent runs in the terminal
// or on the desktop.
func (m *Manager) SetLinger(ctx context.Context, on bool) error {
	const interactive = true
	err := m.conn.Object(name, path).CallWithContext(ctx, manager+".SetUserLinger",
		dbus.FlagAllowInteractiveAuthorization, uint32(os.Getuid()), on, interactive).Err
	if err != nil {
		return fmt.Errorf("the login manager refused: %w", err)
	}
	return nil
}

// LingerWatch reports when lingering is enabled or disabled for this user.
type LingerWatch struct {
	file     string
	files    *inotify.Watcher
	reported bool // the value that was reported last, or the value at the start
}

// WatchLinger starts watching. Run reports all changes since then.
func WatchLinger() (*LingerWatch, error) {
	path, err := lingerFile()
	if err != nil {
		return nil, err
	}
	return watchLinger(path)
}

func watchLinger(file string) (*LingerWatch, error) {
	files, err := inotify.New()
	if err != nil {
		return nil, err
	}
	w := &LingerWatch{file: file, files: files, reported: exists(file)}
	if err := w.watch(); err != nil {
		_ = files.Close()
		return nil, err
	}
	return w, nil
}

// lingerEvents are the events that a directory or an entry of it appears or disappears.
const lingerEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF |
	unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watch watches the directory of the file. The login manager creates it for the first user who
// enables lingering; until then, watch watches its nearest existing parent. If a directory is
// created between the check and the watch, watch checks again.
func (w *LingerWatch) watch() error {
	for {
		dir := filepath.Dir(w.file)
		for !exists(dir) && dir != "/" {
			dir = filepath.Dir(dir)
		}
		_, err := w.files.Add(dir, lingerEvents)
		below := filepath.Dir(w.file)
		for filepath.Dir(below) != dir && below != dir {
			below = filepath.Dir(below)
		}
		switch {
		case err != nil && exists(dir):
			return err
		case err == nil && (below == dir || !exists(below)):
			return nil
		}
	}
}

// Run calls report with each change, until Close.
func (w *LingerWatch) Run(report func(on bool)) {
	check := func() {
		if now := exists(w.file); now != w.reported {
			w.reported = now
			report(now)
		}
	}
	check() // the file may have changed before it was watched
	w.files.Run(func(inotify.Event) {
		_ = w.watch() // if watching fails, the change that caused this event is still reported
		check()
	})
}

// Close ends Run.
func (w *LingerWatch) Close() error { return w.files.Close() }
