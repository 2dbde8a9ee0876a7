package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// ownerFD is the descriptor of the tests' socket to the owner.
const ownerFD = 3

// currentBed is the test bed that this process runs in, nil outside of one.
var currentBed *bed

// bed is the tests' view of the test bed.
type bed struct {
	*plan
	owner *connection // nil in a process that a test started
}

// enterCommandStage prepares this process to run the tests: it waits until the manager is on the
// bus. A test binary that a test starts calls enterCommandStage, too, and shares the manager.
func enterCommandStage(p *plan) error {
	currentBed = &bed{plan: p}
	if !p.Socket {
		return nil
	}
	unix.CloseOnExec(ownerFD)
	file := os.NewFile(ownerFD, "owner")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return fmt.Errorf("cannot reach the owner: %w", err)
	}
	currentBed.owner = &connection{
		decoder: json.NewDecoder(conn), encoder: json.NewEncoder(conn), results: map[buildRequest]error{},
	}
	child := *p
	child.Socket = false
	text := child.variable()
	if err := os.Setenv(planVariable, text[len(planVariable)+1:]); err != nil {
		return fmt.Errorf("cannot set %s: %w", planVariable, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	return awaitManager(ctx)
}

// execCommand executes the plan's command in this process once the manager is on the bus.
func execCommand(p *plan) int {
	if err := enterCommandStage(p); err != nil {
		return report(err)
	}
	if err := os.Unsetenv(planVariable); err != nil {
		return report(err)
	}
	path, err := exec.LookPath(p.Command[0])
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		report(err)
		return 127
	}
	if err == nil || errors.Is(err, exec.ErrDot) {
		err = unix.Exec(path, p.Command, os.Environ())
	}
	report(fmt.Errorf("cannot run %q: %w", p.Command[0], err))
	return 126
}

// awaitManager waits until systemd owns its name on the bus, which happens a moment after the bus
// has started.
func awaitManager(ctx context.Context) error {
	const name = "org.freedesktop.systemd1"
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), dbus.WithContext(ctx),
		dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return fmt.Errorf("cannot reach the bus: %w", err)
	}
	defer func() { _ = conn.Close() }()
	changes := make(chan *dbus.Signal, 16)
	conn.Signal(changes)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender("org.freedesktop.DBus"),
		dbus.WithMatchMember("NameOwnerChanged"),
		dbus.WithMatchArg(0, name)); err != nil {
		return fmt.Errorf("cannot watch the bus: %w", err)
	}
	for {
		var owned bool
		if err := conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0,
			name).Store(&owned); err != nil {
			return fmt.Errorf("cannot ask the bus: %w", err)
		}
		if owned {
			return nil
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("the user manager did not come to the bus within %v", Timeout)
		}
	}
}
