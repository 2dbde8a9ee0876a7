package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// managerLog is the file for the user manager's messages, below the claimed directory.
const managerLog = "manager.log"

// startManager starts `systemd --user` in its own process session, so that a terminal's Ctrl-C does
// not reach it.
func (k *keeper) startManager() (int, error) {
	log, err := os.Create(filepath.Join(k.Dir, managerLog))
	if err != nil {
		return 0, fmt.Errorf("cannot make the manager's log: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("cannot start the user manager: %w", err)
	}
	defer func() { _, _ = log.Close(), null.Close() }()
	process, err := os.StartProcess(systemdProgram(),
		[]string{"systemd", "--user", "--log-target=console", "--log-level=warning", "--show-status=no"}, &os.ProcAttr{
			Dir:   k.homeDir(),
			Env:   append(k.managerEnvironment(), "NOTIFY_SOCKET="+k.notifySocket()),
			Files: []*os.File{null, log, log},
			Sys:   &syscall.SysProcAttr{Credential: k.credential(), Setsid: true},
		})
	if err != nil {
		return 0, fmt.Errorf("cannot start the user manager: %w", err)
	}
	return process.Pid, nil
}

func (k *keeper) notifySocket() string { return filepath.Join(k.Dir, "notify") }

// awaitReady waits until the manager is ready, so that dbus.socket is active, or has exited.
func (k *keeper) awaitReady(manager int, ready <-chan error) error {
	deadline := time.After(Timeout)
	for {
		select {
		case err := <-ready:
			return err
		case e := <-k.exits:
			if e.pid == manager {
				return k.managerFailed(fmt.Sprintf("it ended with status %d", exitStatus(e.status)))
			}
		case s := <-k.control:
			return fmt.Errorf("ended by %v while the user manager was starting", s)
		case <-deadline:
			return k.managerFailed(fmt.Sprintf("it was not ready within %v", Timeout))
		}
	}
}

func (k *keeper) managerFailed(why string) error {
	log, _ := os.ReadFile(filepath.Join(k.Dir, managerLog))
	return errors.New(strings.TrimSpace("cannot start the user manager: " + why + "\n" + string(log)))
}

// systemdProgram returns the path of the systemd program, which is not in PATH.
func systemdProgram() string {
	for _, path := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
