package testbed

import (
	"fmt"
	"os/exec"
)

// neededPrograms are the programs that the test bed runs, each with the Debian package that
// contains it.
var neededPrograms = map[string]string{
	"systemctl": "systemd", "systemd-run": "systemd", "busctl": "systemd", "dbus-daemon": "dbus-daemon", "tmux": "tmux",
}

func requirePrograms() error {
	for program, debian := range neededPrograms {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install %s", program, debian)
		}
	}
	if systemdProgram() == "" {
		return fmt.Errorf("systemd is not installed: apt-get install systemd")
	}
	return nil
}
