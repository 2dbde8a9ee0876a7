// Package sshagent keeps the name under which agents reach the user's ssh-agent: a symbolic link
// that is led to that of the newest login. A program that runs for days has the name in its
// environment, and goes on working after the login that it was started from is over.
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

// LinkName is the link's, in $XDG_RUNTIME_DIR/corral. No session can be called so, whose directory it
// would be.
const LinkName = ".ssh-auth.sock"

// IsLive tells whether a socket of this user's is at the path, and somebody listens on it.
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

// UpdateLink leads the link in dir to the socket of a login, if that one is live and not the link
// itself. Programs that open the link meanwhile get the one or the other.
func UpdateLink(dir, socket string) error {
	link := filepath.Join(dir, LinkName)
	if !filepath.IsAbs(socket) || !IsLive(socket) {
		return nil
	}
	target, err := filepath.EvalSymlinks(socket)
	if err != nil {
		return fmt.Errorf("cannot follow SSH_AUTH_SOCK: %w", err)
	}
	if now, err := filepath.EvalSymlinks(link); err == nil && now == target {
		return nil // it leads there already, or is what the socket's name stands for
	}
	temp := link + "." + rand.Text()
	if err := os.Symlink(socket, temp); err != nil { // as it is named: it may be a link that somebody else keeps up to date
		return fmt.Errorf("cannot follow SSH_AUTH_SOCK: %w", err)
	}
	if err := os.Rename(temp, link); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("cannot follow SSH_AUTH_SOCK: %w", err)
	}
	return nil
}

// Target returns where the link in dir leads to, "" if there is none.
func Target(dir string) (string, error) {
	to, err := os.Readlink(filepath.Join(dir, LinkName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}
