// Package testbed runs a test binary in a private `systemd --user` with its own bus, cgroups, home
// and XDG directories. They are isolated from the rest of the machine and removed when the tests
// end, even if they are killed.
//
//	func TestMain(m *testing.M) { testbed.Main(m) }
//
// The binary runs three times. The first process, the owner, claims a directory and starts the
// second, the keeper, where it may create cgroups: for root in private mount, pid and cgroup
// namespaces; for an ordinary user in a delegated scope of that user's manager. The keeper starts
// `systemd --user` and then the third process, which runs the tests as an unprivileged user. The
// owner forwards signals, builds Corral's programs when a test asks for them, cleans up and exits
// with the status of the tests.
//
//	go test ── owner ── keeper ─┬─ systemd --user ── dbus-daemon, scopes, services
//	                            └─ the tests
//
// If started by root, the tests run with a user id that has no other processes, because
// RLIMIT_NPROC counts by user. That user cannot write to the checkout.
package testbed

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// planVariable is the environment variable in which the owner passes the plan to the keeper, and
// the keeper to the tests.
const planVariable = "CORRAL_TESTBED"

// The stages of the processes other than the owner, which has no plan.
const (
	stageKeeper  = "keeper"
	stageCommand = "command"
)

// plan describes the test bed to the keeper and to the tests.
type plan struct {
	Stage   string
	Dir     string   // the claimed directory
	UID     int      // the unprivileged user of the manager and the command; the caller's, unless that is root
	Command []string // the command to run in the user manager
	Test    bool     // whether Command is this test binary
	Socket  bool     // whether descriptor 3 is the socket to the owner
}

// Main runs the tests of m in a private user manager and exits with their status. It never returns.
//
// Flags that name output files (profiles, coverage) work as usual. With -test.fuzz and -test.list
// the tests run directly, without a user manager: the fuzzing engine keeps its corpus in the
// caller's own cache, and the fuzz tests of this project need no user manager.
func Main(m *testing.M) { MainThen(m, func() {}) }

// MainThen is Main, and calls after in the process of the tests once all of them have ended.
func MainThen(m *testing.M, after func()) {
	p, err := readPlan()
	switch {
	case err != nil:
		fail(err)
	case p == nil && runsInPlace(os.Args):
		os.Exit(m.Run())
	case p == nil:
		exit(runOwner(&plan{Command: os.Args, Test: true}))
	case p.Stage == stageKeeper:
		exit(runKeeperStage(p))
	}
	if err := enterCommandStage(p); err != nil {
		fail(err)
	}
	code := m.Run()
	after()
	os.Exit(code)
}

// RunIfReexecuted performs the task of a process that Run has started from this program, and does
// not return then. In any other process it does nothing. A program that calls Run has to call it
// first.
func RunIfReexecuted() {
	p, err := readPlan()
	switch {
	case err != nil:
		fail(err)
	case p != nil && p.Stage == stageKeeper:
		exit(runKeeperStage(p))
	case p != nil && p.Socket:
		os.Exit(execCommand(p))
	}
}

// Run runs a command in a private user manager and returns its exit status: 128 and the signal
// number if a signal killed it, or 125 if it could not be run, after printing why.
func Run(command []string) int { return runOwner(&plan{Command: command}) }

// readPlan returns the plan that this process was started with, nil in the owner.
func readPlan() (*plan, error) {
	text := os.Getenv(planVariable)
	if text == "" {
		return nil, nil
	}
	p := &plan{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", planVariable, err)
	}
	return p, nil
}

// variable encodes the plan as an environment variable.
func (p *plan) variable() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return planVariable + "=" + string(text)
}

func runsInPlace(args []string) bool {
	for _, arg := range args {
		name := "-" + strings.TrimLeft(arg, "-")
		if name == "-test.fuzzworker" || strings.HasPrefix(name, "-test.fuzz=") || strings.HasPrefix(name, "-test.list=") {
			return true
		}
	}
	return false
}

// statusCannotRun is the exit status for failures of the test bed itself, as in env(1) and
// timeout(1).
const statusCannotRun = 125

// exit exits without the second that the race detector waits for late reports: only the tests need
// that.
func exit(status int) { syscall.Exit(status) }

func report(err error) int {
	fmt.Fprintln(os.Stderr, "testbed:", err)
	return statusCannotRun
}

func fail(err error) { exit(report(err)) }
