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

// lingerDir is where the login manager keeps an empty file for each user who lingers: who may not
// ask it, or does not want to wait, can look there.
const lingerDir = "/var/lib/systemd/linger"

// IsLingering tells whether this user's manager, and with it all that runs there, outlives the
// user's last logout: loginctl(1), enable-linger.
func IsLingering() bool {
	path, err := lingerFile()
	return err == nil && exists(path)
}

func lingerFile() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("cannot find out the user name: %w", err)
	}
	return filepath.Join(lingerDir, escaped(u.Username)), nil
}

// escaped is the name of a user as the login manager has it in a file's name: as in C, of a
// domain's user (EXAMPLE\anna), or one that is not ASCII.
func escaped(user string) string {
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

// SetLinger asks the login manager that this user lingers, or does not any more. A person may be
// asked for a password, where the policy has it so and the terminal or desktop has somebody to ask
// with.
func (m *Manager) SetLinger(ctx context.Context, on bool) error {
	const interactive = true
	err := m.conn.Object(name, path).CallWithContext(ctx, manager+".SetUserLinger", dbus.FlagAllowInteractiveAuthorization,
		uint32(os.Getuid()), on, interactive).Err
	if err != nil {
		return fmt.Errorf("the login manager refused: %w", err)
	}
	return nil
}

// LingerWatch hears of it when this user begins or ceases to linger.
type LingerWatch struct {
	file  string
	files *inotify.Watcher
	last  bool // as it was told, or as it was when the watch began
}

// WatchLinger begins to watch; Run tells of what has changed since.
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
	w := &LingerWatch{file: file, files: files, last: exists(file)}
	if err := w.follow(); err != nil {
		_ = files.Close()
		return nil, err
	}
	return w, nil
}

// follow watches the file's directory or, the login manager making it for the first user who
// lingers, the nearest one above it that is there. What is made between the look and the watch is
// looked for again.
func (w *LingerWatch) follow() error {
	const changes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	for {
		dir := filepath.Dir(w.file)
		for !exists(dir) && dir != "/" {
			dir = filepath.Dir(dir)
		}
		_, err := w.files.Add(dir, changes)
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

// Run calls told with each change, until Close.
func (w *LingerWatch) Run(told func(on bool)) {
	look := func() {
		if now := exists(w.file); now != w.last {
			w.last = now
			told(now)
		}
	}
	look() // it may have been in between, when nothing was watched yet
	w.files.Run(func(inotify.Event) {
		// Where it cannot be followed any more, what can be seen is told all the same.
		_ = w.follow()
		look()
	})
}

// Close ends Run.
func (w *LingerWatch) Close() error { return w.files.Close() }
