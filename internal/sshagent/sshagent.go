// Package sshagent maintains a symbolic link to the ssh-agent socket of the user's newest login.
// Agents have the link in SSH_AUTH_SOCK, so that they can still use ssh-agent after the login from
// which they were started has ended.
package sshagent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// LinkName is the name of the link in $XDG_RUNTIME_DIR/corral. That directory also contains the
// sessions' directories; no session can have this name.
const LinkName = ".ssh-auth.sock"

// IsLive reports whether there is a socket of this user at the path on which a process listens.
func IsLive(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Getuid() {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// UpdateLink makes the link in dir point to the socket of a login, if that socket is live and is
// not the link itself. The link is replaced atomically.
func UpdateLink(dir, socket string) error {
	link := filepath.Join(dir, LinkName)
	if !filepath.IsAbs(socket) || !IsLive(socket) {
		return nil
	}
	target, err := filepath.EvalSymlinks(socket)
	if err != nil {
		return fmt.Errorf("cannot update the link to SSH_AUTH_SOCK: %w", err)
	}
	if now, err := filepath.EvalSymlinks(link); err == nil && now == target {
		return nil // the link is up to date, or socket is an alias of it
	}
	temp := link + "." + rand.Text()
	// The target is not resolved: it may itself be a link that another program updates.
	if err := os.Symlink(socket, temp); err != nil {
		return fmt.Errorf("cannot update the link to SSH_AUTH_SOCK: %w", err)
	}
	if err := os.Rename(temp, link); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("cannot update the link to SSH_AUTH_SOCK: %w", err)
	}
	return nil
}

// Target returns the target of the link in dir, "" if the link does not exist.
func Target(dir string) (string, error) {
	to, err := os.Readlink(filepath.Join(dir, LinkName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}
