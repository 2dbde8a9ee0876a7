// Package testbed gives a test binary a private `systemd --user`: its own bus, cgroups, home and
// XDG directories, seen by nobody else and gone without a trace when the tests end, however they
// end.
//
//	func TestMain(m *testing.M) { testbed.Main(m) }
//
// The binary runs three times. The first process, the owner, claims a directory and starts the
// second, the keeper, where it may have cgroups of its own: as root in private mount, pid and
// cgroup namespaces; as an ordinary user in a delegated scope of that user's manager. The keeper
// starts `systemd --user`, then the third, which runs the tests as an unprivileged user. The owner
// passes signals on, builds Corral's programs when a test asks for them, cleans up and exits with
// the status of the tests.
//
//	go test ── owner ── keeper ─┬─ systemd --user ── dbus-daemon, scopes, services
//	                            └─ the tests
//
// As root, the tests run as a user id that has no processes beside them, since RLIMIT_NPROC counts
// by user. That user cannot write to the checkout.
package testbed

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// planVariable carries the plan from the owner to the keeper and from there to the tests.
const planVariable = "CORRAL_TESTBED"

// The stages that a process of the test bed can be in, beside that of the owner, which has no plan.
const (
	stageKeeper = "keeper"
	stageInside = "inside"
)

// plan is what a process needs to know that is started for the test bed.
type plan struct {
	Stage   string
	Dir     string   // the claimed directory
	UID     int      // the unprivileged user of the manager and the command; the one that runs everything, when not started by root
	Command []string // what to run in the user manager
	Test    bool     // whether Command is this test binary
	Verbose bool
	Socket  bool // whether descriptor 3 leads to the owner
}

// Main runs the tests of m in a private user manager and exits with their status. It never returns.
//
// Flags that name files to be written (profiles, coverage) work as usual. With -test.fuzz and
// -test.list the tests run where they are, without a user manager: the fuzzing engine keeps its
// corpus in the caller's own cache, and what is fuzzed in this project is pure.
func Main(m *testing.M) {
	p, err := readPlan()
	switch {
	case err != nil:
		fail(err)
	case p == nil && runsInPlace(os.Args):
		os.Exit(m.Run())
	case p == nil:
		exit(own(&plan{Command: os.Args, Test: true}))
	case p.Stage == stageKeeper:
		exit(keep(p))
	}
	if err := goInside(p); err != nil {
		fail(err)
	}
	os.Exit(m.Run())
}

// RunIfReexecuted goes on in a process that Run started, and never returns there. In any other it
// does nothing. A program that calls Run has to call it first.
func RunIfReexecuted() {
	p, err := readPlan()
	switch {
	case err != nil:
		fail(err)
	case p != nil && p.Stage == stageKeeper:
		exit(keep(p))
	case p != nil && p.Socket:
		os.Exit(become(p))
	}
}

// Run runs a command in a private user manager and returns its exit status, 128 and the signal's
// number when a signal ended it, or 125 after telling why it could not be run.
func Run(command []string, verbose bool) int {
	return own(&plan{Command: command, Verbose: verbose})
}

// readPlan returns the plan that this process was started with, nil if it is an owner.
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

// variable is the plan as an entry of the environment.
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

// statusCannotRun is the exit status of the test bed's own failures, as of env(1) and timeout(1).
const statusCannotRun = 125

// exit ends this process without the second that the race detector waits for late reports: only the
// tests are worth it.
func exit(status int) { syscall.Exit(status) }

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "testbed:", err)
	return statusCannotRun
}

func fail(err error) { exit(complain(err)) }
