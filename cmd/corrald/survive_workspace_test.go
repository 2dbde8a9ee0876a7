package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestWorkspace_PathVanishesAtAnyLevel moves, removes or retargets each component of a workspace's
// path: it is reported at once, nothing is killed, and when the change is undone the session has
// its previous state.
func TestWorkspace_PathVanishesAtAnyLevel(t *testing.T) {
	d := startDaemon(t)
	for _, row := range []struct {
		name        string
		path        string // of the workspace, below the directory of the row; real is the directory that is created
		real        string
		link        string // a symbolic link that is created first: name, target
		target      string
		gone, comes func(t *testing.T, at func(string) string)
	}{
		{name: "moved", real: "src/shop", path: "src/shop", gone: move("src/shop", "src/away"),
			comes: move("src/away", "src/shop")},
		{name: "moved to another directory", real: "src/shop", path: "src/shop", gone: move("src/shop", "away"),
			comes: move("away", "src/shop")},
		{name: "removed under the agent", real: "src/shop", path: "src/shop", gone: remove("src/shop"),
			comes: mkdir("src/shop")},
		{name: "the directory above moved", real: "src/shop", path: "src/shop", gone: move("src", "away"),
			comes: move("away", "src")},
		{name: "two levels above moved", real: "a/b/c/shop", path: "a/b/c/shop", gone: move("a/b", "a/away"),
			comes: move("a/away", "a/b")},
		{name: "three levels above moved", real: "a/b/c/shop", path: "a/b/c/shop", gone: move("a", "away"),
			comes: move("away", "a")},
		{name: "two levels above removed", real: "a/b/c/shop", path: "a/b/c/shop", gone: remove("a/b"),
			comes: mkdir("a/b/c/shop")},
		{name: "everything removed, recreated level by level", real: "a/b/c/shop", path: "a/b/c/shop", gone: remove("a"),
			comes: func(t *testing.T, at func(string) string) {
				for _, dir := range []string{"a", "a/b", "a/b/c", "a/b/c/shop"} {
					mkdir(dir)(t, at)
				}
			}},
		{name: "a file in its place", real: "src/shop", path: "src/shop", gone: func(t *testing.T, at func(string) string) {
			remove("src/shop")(t, at)
			require.NoError(t, os.WriteFile(at("src/shop"), nil, 0o600))
		}, comes: func(t *testing.T, at func(string) string) { remove("src/shop")(t, at); mkdir("src/shop")(t, at) }},
		{name: "its link removed", real: "src/shop", link: "here", target: "src/shop", path: "here", gone: remove("here"),
			comes: link("src/shop", "here")},
		{name: "its link retargeted", real: "src/shop", link: "here", target: "src/shop", path: "here",
			gone: relink("src", "here"), comes: relink("src/shop", "here")},
		{name: "a link above retargeted", real: "a/b/shop", link: "here", target: "a", path: "here/b/shop",
			gone: relink(".", "here"), comes: relink("a", "here")},
		{name: "the target of its link moved", real: "src/shop", link: "here", target: "src/shop", path: "here",
			gone: move("src", "away"), comes: move("away", "src")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			base := testbed.Dir(t)
			at := func(name string) string { return filepath.Join(base, name) }
			mkdir(row.real)(t, at)
			if row.link != "" {
				link(row.target, row.link)(t, at)
			}
			s := d.create(t, filepath.Base(base), spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at(row.path)})
			pid := s.waitState("running").number("MainPID")
			for range 3 {
				row.gone(t, at)
				s.waitOutcome(outcome{"orphaned", "", 0, 0, `workspace "` + at(row.path) + `" is gone`, "error"})
				require.NoError(t, syscall.Kill(pid, 0), "the agent is alive")
				row.comes(t, at)
				s.waitOutcome(outcome{"running", "", 0, 0, "", "active"})
				assert.Equal(t, pid, s.properties().number("MainPID"))
			}
			s.must("Stop", uint64(0))
		})
	}
}

// TestWorkspace_MovedAndReplacedByALink checks that a workspace that was moved is found through a
// symbolic link at its old path.
func TestWorkspace_MovedAndReplacedByALink(t *testing.T) {
	d := startDaemon(t)
	base := testbed.Dir(t)
	at := func(name string) string { return filepath.Join(base, name) }
	mkdir("src/shop")(t, at)
	s := d.create(t, "moved", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at("src/shop")})
	move("src", "away")(t, at)
	s.waitState("orphaned")
	link("away", "src")(t, at)
	s.waitOutcome(outcome{"running", "", 0, 0, "", "active"})

	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"}) // also for a daemon that was not running during the move
	require.NoError(t, os.Remove(at("src")))
	s.waitState("orphaned")
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	mkdir("src/shop")(t, at)
	d.launch()
	// Another directory at the same path is a workspace that has reappeared.
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
}

// TestWorkspace_LinkToAnotherDirectoryIsNotAccepted replaces the workspace by a link to another
// directory while no daemon is running.
func TestWorkspace_LinkToAnotherDirectoryIsNotAccepted(t *testing.T) {
	d := startDaemon(t)
	base := testbed.Dir(t)
	at := func(name string) string { return filepath.Join(base, name) }
	mkdir("src/shop")(t, at)
	mkdir("else/shop")(t, at)
	s := d.create(t, "moved", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at("src/shop")})
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	move("src", "away")(t, at)
	link("else", "src")(t, at)
	d.launch()
	s.waitState("orphaned")
	relink("away", "src")(t, at)
	s.waitState("running")
}

// TestWorkspace_NewRunFollowsARetargetedLink checks that the workspace of a new run is the
// directory to which its path resolves at that time.
func TestWorkspace_NewRunFollowsARetargetedLink(t *testing.T) {
	d := startDaemon(t)
	base := testbed.Dir(t)
	at := func(name string) string { return filepath.Join(base, name) }
	mkdir("one")(t, at)
	mkdir("two")(t, at)
	link("one", "here")(t, at)
	s := d.create(t, "elsewhere",
		spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at("here"), "Exclusive": true})
	relink("two", "here")(t, at)
	s.waitState("orphaned")
	s.must("Stop", uint64(0))
	s.must("Start")
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	other := d.create(t, "other",
		spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at("one"), "Exclusive": true})
	other.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	_, err := d.tryCreate(t, "third",
		spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": at("two"), "Exclusive": true})
	assertRefused(t, err, "WorkspaceBusy", "elsewhere")
}

type pathChange = func(t *testing.T, at func(string) string)

func move(from, to string) pathChange {
	return func(t *testing.T, at func(string) string) { require.NoError(t, os.Rename(at(from), at(to))) }
}

func remove(name string) pathChange {
	return func(t *testing.T, at func(string) string) { require.NoError(t, os.RemoveAll(at(name))) }
}

func mkdir(name string) pathChange {
	return func(t *testing.T, at func(string) string) { require.NoError(t, os.MkdirAll(at(name), 0o700)) }
}

func link(target, name string) pathChange {
	return func(t *testing.T, at func(string) string) { require.NoError(t, os.Symlink(at(target), at(name))) }
}

// relink changes the target of a link atomically, as ln -sfn cannot but mv -T can.
func relink(target, name string) pathChange {
	return func(t *testing.T, at func(string) string) {
		link(target, name+".new")(t, at)
		move(name+".new", name)(t, at)
	}
}

// TestWorkspace_OrphanWithoutTmuxCanBeResumed checks that the agent's terminal can be reached again
// although both the workspace and tmux are gone.
func TestWorkspace_OrphanWithoutTmuxCanBeResumed(t *testing.T) {
	d := startDaemon(t)
	dir := filepath.Join(testbed.Dir(t), "shop")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := d.create(t, "shop", spec{"Command": []string{"sh", "-c", "cd /; exec sleep 1000"}, "WorkingDirectory": dir})
	pid := s.waitState("running").number("MainPID")
	require.NoError(t, os.Remove(dir))
	s.waitState("orphaned")
	kill(t, s.process(tmuxName), syscall.SIGKILL)
	testbed.Poll(t, "tmux is gone", func() bool { return len(s.processes()[tmuxName]) == 0 })
	testbed.Poll(t, "the session can be resumed", func() bool { return s.do("Resume") == nil })
	assert.Equal(t, pid, s.properties().number("MainPID"))
	s.waitState("orphaned")
	s.process(tmuxName) // a single one
	require.NoError(t, os.Mkdir(dir, 0o700))
	s.waitState("running")
}
