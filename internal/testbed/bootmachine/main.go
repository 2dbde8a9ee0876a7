// Bootmachine boots a temporary machine, runs a command on it as a new lingering user, and exits
// with its status. It needs root:
//
//	go run ./internal/testbed/bootmachine [-root SUITE|DIRECTORY] [-install DESTDIR] [-user NAME] \
//	    -- COMMAND [ARGUMENT…]
//
// The machine runs the host's own system, a Debian suite (bookworm, trixie, sid), or the system in
// a directory.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/machine"
)

func main() {
	root := flag.String("root", "/", "the machine's system: a directory, or a Debian suite to be fetched and kept")
	destdir := flag.String("install", "", "a tree of `make install DESTDIR=` to copy onto the machine")
	user := flag.String("user", "alice", "who runs the command; root may too")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr,
			"usage: bootmachine [-root SUITE|DIRECTORY] [-install DESTDIR] [-user NAME] -- COMMAND [ARGUMENT…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	s := &session{}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	status := make(chan int, 1)
	go func() { status <- s.run(*root, *destdir, *user, flag.Args()) }()
	select {
	case code := <-status:
		s.cleanUp()
		os.Exit(code)
	// The kernel kills the machine with this process; the next run removes its directory.
	case sig := <-interrupted:
		os.Exit(128 + int(sig.(unix.Signal)))
	}
}

// session is one run of this program. It implements machine.T.
type session struct {
	cleanups []func()
}

func (s *session) run(root, destdir, user string, command []string) int {
	if !strings.Contains(root, "/") {
		root = machine.Debian(s, root)
	}
	m := machine.Boot(s, machine.Options{Root: root})
	if destdir != "" {
		m.Install(destdir)
	}
	if user != "root" {
		m.User(user)
	}
	cmd := m.Command(user, command...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exited := new(exec.ExitError); err != nil && !errors.As(err, &exited) {
		s.Fatalf("%v", err)
	}
	return cmd.ProcessState.ExitCode()
}

func (s *session) Helper()           {}
func (s *session) Failed() bool      { return false }
func (s *session) Cleanup(do func()) { s.cleanups = append(s.cleanups, do) }

func (s *session) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bootmachine: "+format+"\n", args...)
}

func (s *session) Fatalf(format string, args ...any) {
	s.Logf(format, args...)
	s.cleanUp()
	os.Exit(125)
}

func (s *session) cleanUp() {
	for _, do := range slices.Backward(s.cleanups) {
		do()
	}
	s.cleanups = nil
}
