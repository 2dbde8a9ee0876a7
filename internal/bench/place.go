package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/testbed"
)

// place is a directory on a real disk with copies of the measured programs and with all files that
// they write. If root starts the bench, another user measures, who can read neither the checkout
// nor Go's build cache.
type place struct{ dir string }

// placeParent is, by the Filesystem Hierarchy Standard, for files that survive a reboot. A tmpfs
// would make every fsync free.
const placeParent = "/var/tmp"

func makePlace(programs string) (place, error) {
	dir, err := os.MkdirTemp(placeParent, "corral-bench.")
	if err != nil {
		return place{}, fmt.Errorf("cannot make a place: %w", err)
	}
	p := place{dir}
	if err := p.fill(programs); err != nil {
		p.remove()
		return place{}, err
	}
	return p, nil
}

func (p place) fill(programs string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the own program: %w", err)
	}
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{p.dir, 0o755}, {p.program(""), 0o755}, {p.work(), 0o777}} {
		if err := os.MkdirAll(dir.path, 0o755); err != nil {
			return fmt.Errorf("cannot make a place: %w", err)
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil {
			return fmt.Errorf("cannot make a place: %w", err)
		}
	}
	for _, name := range []string{"corrald", "corralctl", "corral-shim"} {
		err := testbed.CopyProgram(filepath.Join(programs, name), p.program(name))
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is not built: run `make build` in the top directory", filepath.Join(programs, name))
		}
		if err != nil {
			return fmt.Errorf("cannot take the programs: %w", err)
		}
	}
	if err := testbed.CopyProgram(self, p.program("bench")); err != nil {
		return fmt.Errorf("cannot take the programs: %w", err)
	}
	return nil
}

func (p place) remove() { _ = os.RemoveAll(p.dir) }

func (p place) program(name string) string { return filepath.Join(p.dir, "bin", name) }

// work returns the directory for everything that is written: state, logs, workspaces.
func (p place) work() string { return filepath.Join(p.dir, "work") }

// as returns the command that plays a role; see play.
func (p place) as(role string, args ...string) []string {
	return append([]string{p.program("bench"), roleWord, role}, args...)
}

// disk returns the type and the device of the file system that contains the place.
func (p place) disk() string {
	found, err := exec.Command("findmnt", "--noheadings", "--raw", "--output=FSTYPE,SOURCE", "--target", p.dir).Output()
	if err != nil {
		return "an unknown file system"
	}
	return strings.TrimSpace(string(found))
}
