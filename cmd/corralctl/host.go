package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// connectHost connects to the user's bus on another machine.
func connectHost(ctx context.Context, host string) (*client.Client, error) {
	// The bridge's option --user is only for containers, but the remote shell knows the path of the
	// user's bus. The variable has no braces, which fish does not accept.
	ssh := exec.CommandContext(ctx, "ssh", "-xT", "--", host, "systemd-stdio-bridge",
		"--bus-path=unix:path=$XDG_RUNTIME_DIR/bus")
	ssh.Stderr = os.Stderr
	in, err := ssh.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := ssh.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := ssh.Start(); err != nil {
		return nil, &client.ConnectError{Err: err}
	}
	return client.ConnectOver(ctx, sshBridge{out, in, ssh})
}

// sshBridge is the connection to a bus on another machine.
type sshBridge struct {
	io.Reader
	io.WriteCloser
	ssh *exec.Cmd
}

func (b sshBridge) Close() error {
	err := b.WriteCloser.Close()
	return errors.Join(err, b.ssh.Process.Kill())
}

// execHost replaces this process by a verb on the other machine, for verbs that need a file
// descriptor or a terminal there. It passes the options that were given, except --host.
func (c *ctl) execHost(verb string, args ...string) error {
	cmd, err := c.findVerb(verb)
	if err != nil {
		return err
	}
	words := []string{verb}
	addOption := func(option *pflag.Flag) {
		switch value := option.Value.String(); {
		case !option.Changed || option.Name == "host":
		case option.Value.Type() == "bool" && value == "true":
			words = append(words, "--"+option.Name)
		default:
			words = append(words, "--"+option.Name+"="+value)
		}
	}
	c.commands.PersistentFlags().VisitAll(addOption)
	cmd.LocalNonPersistentFlags().VisitAll(addOption)
	command := []string{"ssh", "--", c.host, "corralctl"}
	if c.outTTY != nil {
		command = []string{"ssh", "-t", "--", c.host, "corralctl"}
	}
	for _, word := range slices.Concat(words, []string{"--"}, args) {
		command = append(command, wording.ShellWord(word)) // ssh joins its arguments for the remote shell
	}
	return c.exec(command, os.Environ())
}

// exec replaces this process by a command.
func (c *ctl) exec(argv, environment []string) error {
	if len(argv) == 0 {
		return errors.New("the command is empty")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := c.finish(); err != nil {
		return err
	}
	return fmt.Errorf("cannot run %q: %w", argv[0], syscall.Exec(program, argv, environment))
}
