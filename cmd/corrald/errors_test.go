package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestErrors_AllOfTheContractAreReturned provokes each error of the contract and checks its exact
// name.
func TestErrors_AllOfTheContractAreReturned(t *testing.T) {
	d := startDaemon(t, "MaxSessions=6")
	d.write("config/corral/agents/missing.agent", "[Agent]\nCommand=no-such-program\n")
	require.NoError(t, d.manager("Reload", nil))
	s := d.savingSession(t, "shop")
	created := d.create(t, "created", spec{"Command": []string{"true"}, "Start": false})
	work := testbed.Dir(t)
	d.create(t, "holder", exclusive(work))
	create := func(agent string, sp spec) error {
		var id string
		var path dbus.ObjectPath
		return d.manager("CreateSession", []any{agent, sp.variants()}, &id, &path)
	}
	get := func(iface, name string) error {
		return d.call(dbusapi.SessionPath("shop"), "org.freedesktop.DBus.Properties.Get", []any{iface, name})
	}
	reached := map[string]func() error{
		dbusapi.NoSuchSession:    func() error { return d.manager("StopSession", []any{"nobody", uint64(0)}) },
		dbusapi.SessionExists:    func() error { return create("command", spec{"Id": "shop", "Command": []string{"true"}}) },
		dbusapi.NoSessionForPID:  func() error { return d.manager("GetSessionByPID", []any{uint32(os.Getpid())}) },
		dbusapi.NoSessionForUnit: func() error { return d.manager("GetSessionByUnit", []any{"ssh.service"}) },
		dbusapi.NoSuchAgent:      func() error { return create("hal", spec{}) },
		dbusapi.AgentNotInstalled: func() error {
			return create("missing", spec{"Environment": []string{"PATH=/usr/bin:/bin"}})
		},
		dbusapi.InvalidState: func() error { return s.do("Resume") },
		dbusapi.NotResumable: func() error { return created.do("Resume") },
		dbusapi.NotWaiting:   func() error { return s.do("SendInput", "yes", dbusapi.InputIfWaiting) },
		dbusapi.WorkspaceMissing: func() error {
			return create("command", spec{"Command": []string{"true"}, "WorkingDirectory": "/no/such"})
		},
		dbusapi.WorkspaceBusy: func() error { return create("command", exclusive(work)) },
		dbusapi.ConversationBusy: func() error {
			talking := func(id string) error {
				return create("command", spec{"Id": id, "Command": []string{"sleep", "1000"}, "ConversationId": "talk"})
			}
			require.NoError(t, talking("first"))
			return talking("second")
		},
		dbusapi.StartFailed: func() error {
			return create("command", spec{"Id": "failed", "Command": []string{"/no/such/program"}})
		},
		dbusapi.TmuxFailed: func() error {
			sockets, err := filepath.Glob(d.runtimeDir("shop") + "/tmux*")
			require.NoError(t, err)
			require.NotEmpty(t, sockets)
			for _, socket := range sockets {
				require.NoError(t, os.Rename(socket, socket+".away"))
				defer func() { _ = os.Rename(socket+".away", socket) }()
			}
			return s.do("Capture", uint32(1), uint64(0))
		},
		dbusapi.TooManySessions: func() error {
			for {
				if err := create("command", spec{"Command": []string{"true"}, "Start": false}); err != nil {
					return err
				}
			}
		},
		dbusapi.ConfigError: func() error {
			conf := filepath.Join(d.dir, "config/corral/corral.conf")
			require.NoError(t, os.Chmod(conf, 0))
			defer func() { _ = os.Chmod(conf, 0o600) }()
			return d.manager("Reload", nil)
		},
		dbusapi.NotTrusted: func() error {
			d.createRepository(t)
			d.write("src/shop/.corral/setup", "#!/bin/sh\n")
			d.git(t, "src/shop", "add", ".")
			d.git(t, "src/shop", "commit", "--quiet", "-m", "setup")
			return create("command", d.worktree("", ""))
		},
		dbusapi.Internal: func() error {
			sessions := filepath.Dir(d.stateDir("x"))
			require.NoError(t, os.Chmod(sessions, 0o500))
			defer func() { _ = os.Chmod(sessions, 0o700) }()
			return create("command", spec{"Command": []string{"true"}, "Start": false})
		},
		dbusapi.UnknownObject: func() error {
			return d.call(dbusapi.SessionPath("nobody"), dbusapi.SessionInterface+".Start", nil)
		},
		dbusapi.UnknownInterface: func() error { return get("org.example.Paint", "Colour") },
		dbusapi.UnknownMethod:    func() error { return s.do("Explode") },
		dbusapi.UnknownProperty:  func() error { return get(dbusapi.SessionInterface, "Colour") },
		dbusapi.PropertyReadOnly: func() error {
			return d.call(dbusapi.SessionPath("shop"), "org.freedesktop.DBus.Properties.Set",
				[]any{dbusapi.SessionInterface, "State", dbus.MakeVariant("stopped")})
		},
		dbusapi.InvalidArgs:    func() error { return s.do("Stop", "now") },
		dbusapi.LimitsExceeded: func() error { return s.do("SetDescription", strings.Repeat("x", 2000)) },
		dbusapi.Timeout: func() error {
			systemd := d.pidOf(t, "org.freedesktop.systemd1")
			kill(t, systemd, syscall.SIGSTOP)
			defer kill(t, systemd, syscall.SIGCONT)
			return s.do("Freeze")
		},
		dbusapi.NotSupported: func() error { return s.do("Approve") },
		dbusapi.AccessDenied: func() error {
			answer := filepath.Join(d.dir, "answer")
			approve := "gdbus call -e -d " + dbusapi.BusName + " -o " + string(dbusapi.SessionPath("shop")) +
				" -m " + dbusapi.SessionInterface + ".Approve"
			d.run(t, "sly", approve+" 2>"+answer+"; true").waitState("completed")
			name := regexp.MustCompile(`GDBus\.Error:([\w.]+): (.*)`).FindStringSubmatch(readFile(t, answer))
			require.NotNil(t, name)
			return dbus.Error{Name: name[1], Body: []any{name[2]}}
		},
		// The last one: a call in progress is answered when the daemon exits.
		dbusapi.ShuttingDown: func() error {
			stubborn := d.run(t, "stubborn", "trap '' TERM HUP; while :; do sleep 1000 & wait; done")
			stubborn.waitState("running")
			mark := d.signals.mark()
			call := d.bus.Object(dbusapi.BusName, dbusapi.SessionPath("stubborn")).
				Go(dbusapi.SessionInterface+".Stop", 0, make(chan *dbus.Call, 1), uint64(60e6))
			d.await(t, mark, "stopping", func(s *dbus.Signal) bool {
				c, ok := stateChange(s)
				return ok && c.id == "stubborn" && c.after == "stopping"
			})
			d.kill(syscall.SIGTERM)
			return testbed.Receive(t, call.Done, "answer").Err
		},
	}
	last := []string{dbusapi.TooManySessions, dbusapi.Timeout, dbusapi.ShuttingDown}
	names := contractErrors(t)
	for name := range reached {
		assert.Contains(t, names, name)
	}
	for _, name := range append(slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.Contains(last, n)
	}), last...) {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, reached, name, "the contract has it")
			if name == dbusapi.ShuttingDown {
				for _, id := range d.ids(t) {
					if id != "shop" && id != "stubborn" {
						require.NoError(t, d.manager("RemoveSession", []any{id, dbusapi.RemoveForce}))
					}
				}
			}
			assertRefused(t, reached[name](), name)
		})
	}
}

// contractErrors returns the errors that the contract names.
func contractErrors(t *testing.T) []string {
	t.Helper()
	m := regexp.MustCompile(`(?s)Error\.\*: (.*?); beside them the standard (.*?) of org`).
		FindStringSubmatch(dbusapi.ManagerXML)
	require.NotNil(t, m)
	return strings.Fields(m[1] + " " + m[2])
}

// pidOf returns the process that owns a name on the bus.
func (d *corrald) pidOf(t *testing.T, name string) int {
	t.Helper()
	var pid uint32
	require.NoError(t, d.bus.BusObject().Call("org.freedesktop.DBus.GetConnectionUnixProcessID", 0, name).Store(&pid))
	return int(pid)
}
