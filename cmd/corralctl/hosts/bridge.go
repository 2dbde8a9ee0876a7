package hosts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// bridge is the command that connects its standard input and output to the bus of the user that it
// runs as. The bridge's option --user is only for containers before systemd 254, so the path of the
// bus is given. The shell of the user may be any; this one is known.
const bridge = `exec sh -c 'exec systemd-stdio-bridge --bus-path=unix:path=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/bus'`

// connectSeconds limits how long ssh tries to connect while nobody can be asked.
const connectSeconds = "10"

// Dial connects to the bus of the user on the host. With asks, ssh may ask for a password on the
// terminal, and prints its errors there until the connection is made. Options are further ones of
// ssh. The connection lasts until it
// is closed or ctx is done. Errors: *client.ConnectError.
func (h Host) Dial(ctx context.Context, asks bool, options ...string) (*client.Client, error) {
	if h.IsLocal() {
		return client.Connect(ctx)
	}
	words := append([]string{"ssh", "-xT"}, options...)
	switch {
	case h.Machine != "":
		words = inMachine(h.Machine, "--pipe", "/bin/sh", "-c", bridge)
		if !asks {
			words = slices.Insert(words, 1, "--no-ask-password")
		}
	case asks:
		words = append(words, "--", h.Destination, bridge)
	default:
		words = append(words, "-oBatchMode=yes", "-oConnectTimeout="+connectSeconds, "--", h.Destination, bridge)
	}
	b := &bridged{command: exec.CommandContext(ctx, words[0], words[1:]...)}
	b.wait = sync.OnceFunc(func() { _ = b.command.Wait() })
	b.command.Stderr = &b.errors
	b.errors.isPrinted.Store(asks)
	if !asks {
		b.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it cannot use the terminal
	}
	var err error
	if b.WriteCloser, err = b.command.StdinPipe(); err != nil {
		return nil, err
	}
	if b.Reader, err = b.command.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := b.command.Start(); err != nil {
		return nil, &client.ConnectError{Err: err}
	}
	c, err := client.ConnectOver(ctx, b)
	if err != nil {
		return nil, b.explain(err)
	}
	b.errors.isPrinted.Store(false) // a full screen may follow
	return c, nil
}

// inMachine returns the command line that runs a program in a login session of a user of a local
// machine, as systemctl --machine= does. Without "@", the user is root; if one side of it is empty,
// it is the own user name, or this machine.
func inMachine(machine, streams string, argv ...string) []string {
	name, host, at := strings.Cut(machine, "@")
	if !at {
		name, host = "root", machine
	}
	if name == "" {
		if self, err := user.Current(); err == nil {
			name = self.Username
		}
	}
	return append([]string{"systemd-run", "--machine=" + cmp.Or(host, config.LocalHost), streams, "--quiet", "--wait",
		"--collect", "--property=User=" + name, "--property=PAMName=login", "--"}, argv...)
}

// bridged is the connection to a bus on another machine.
type bridged struct {
	io.Reader
	io.WriteCloser
	command *exec.Cmd
	wait    func() // for the end of the command
	errors  lastLine
}

// Close ends the command. It is not waited for: ssh may need some time to end.
func (b *bridged) Close() error {
	err := b.WriteCloser.Close()
	err = errors.Join(err, b.command.Process.Kill())
	go b.wait()
	return err
}

// explain returns the error of a connection that could not be made, as the command explains it.
func (b *bridged) explain(err error) error {
	_ = b.WriteCloser.Close()
	_ = b.command.Process.Kill()
	b.wait()
	if text := b.errors.String(); text != "" {
		return &client.ConnectError{Err: errors.New(text)}
	}
	var connect *client.ConnectError
	if errors.As(err, &connect) && errors.Is(connect.Err, io.EOF) {
		return &client.ConnectError{Err: fmt.Errorf("%s has ended", b.command.Args[0])}
	}
	return err
}

// lastLine keeps the end of what a command prints to standard error, or passes it on.
type lastLine struct {
	isPrinted atomic.Bool
	text      []byte
}

const maxLine = 512

func (l *lastLine) Write(p []byte) (int, error) {
	if l.isPrinted.Load() {
		return os.Stderr.Write(p)
	}
	l.text = append(l.text, p...)
	if n := len(l.text); n > maxLine {
		l.text = append([]byte(nil), l.text[n-maxLine:]...)
	}
	return len(p), nil
}

// String returns the last line that is not empty, without control characters.
func (l *lastLine) String() string {
	lines := bytes.Split(bytes.TrimSpace(l.text), []byte("\n"))
	return wording.Printable(strings.TrimSpace(string(lines[len(lines)-1])))
}

// Command returns the command line that runs a program on the host, with the terminal of this one
// if terminal is set.
func (h Host) Command(terminal bool, argv ...string) []string {
	switch {
	case h.IsLocal():
		return argv
	case h.Machine != "":
		if terminal {
			return inMachine(h.Machine, "--pty", argv...)
		}
		return inMachine(h.Machine, "--pipe", argv...)
	}
	words := []string{"ssh"}
	if terminal {
		words = append(words, "-t")
	}
	words = append(words, "--", h.Destination)
	for _, word := range argv {
		words = append(words, wording.ShellWord(word)) // ssh joins its arguments for the remote shell
	}
	return words
}
