package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// git runs git in a directory below the daemon's home, with that home as its own, and returns its
// output.
func (d *corrald) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = d.dir + "/" + dir
	cmd.Env = append(d.env, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %q: %s", args, out)
	return strings.TrimSpace(string(out))
}

// startWithRepository starts a daemon, and creates a repository.
func startWithRepository(t *testing.T) *corrald {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", "")
	d := startDaemon(t)
	d.createRepository(t)
	return d
}

// createRepository creates a repository src/shop with one commit, which contains the file sub/a.
func (d *corrald) createRepository(t *testing.T) {
	t.Helper()
	d.write(".gitconfig", "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n")
	d.write("src/shop/sub/a", "one\n")
	d.git(t, "src/shop", "init", "--quiet")
	d.git(t, "src/shop", "add", ".")
	d.git(t, "src/shop", "commit", "--quiet", "-m", "first")
}

// worktree returns the details of a session in a worktree of its own, for a directory of the
// repository.
func (d *corrald) worktree(branch, dir string) spec {
	return spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": d.dir + "/src/shop" + dir, "Worktree": branch}
}

// Flags of RemoveSession.
const (
	removeWorktree = dbusapi.RemoveWorktree
	discard        = dbusapi.RemoveWorktree | dbusapi.RemoveDiscard
)

func TestWorktree(t *testing.T) {
	d := startWithRepository(t)
	root := d.dir + "/.local/share/corral/worktrees"
	t.Run("the session runs in the same directory of the worktree", func(t *testing.T) {
		s := d.create(t, "shop", d.worktree("", "/sub"))
		p := s.waitState("running")
		assert.Equal(t, "corral/shop", p.text("Worktree"))
		assert.Equal(t, root+"/shop/sub", p.text("WorkingDirectory"))
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.number("MainPID")))
		require.NoError(t, err)
		assert.Equal(t, root+"/shop/sub", cwd)
		var rows []dbusapi.SessionRowEx
		require.NoError(t, d.manager("ListSessionsEx", nil, &rows))
		assert.Equal(t, "corral/shop", rows[0].More["Worktree"].Value())
		d.kill(syscall.SIGKILL)
		d.launch()
		assert.Equal(t, "corral/shop", s.properties().text("Worktree"), "the next daemon knows it")

		assertRefused(t, s.do("Remove", removeWorktree), dbusapi.InvalidState, "running")
		s.must("Remove", removeWorktree|dbusapi.RemoveForce)
		assert.NoDirExists(t, root+"/shop")
		assert.Equal(t, "* main", d.git(t, "src/shop", "branch"))
		assert.NotContains(t, d.ids(t), "shop")
	})
	t.Run("work that would be lost keeps the worktree and the session", func(t *testing.T) {
		s := d.create(t, "busy", d.worktree("fix", ""))
		d.write(".local/share/corral/worktrees/busy/new", "")
		assertRefused(t, s.do("Remove", removeWorktree|dbusapi.RemoveForce), dbusapi.InvalidState, "busy",
			"1 untracked file", root+"/busy")
		s.waitState("running")
		s.must("Stop", uint64(0))
		assertRefused(t, s.do("Remove", removeWorktree), dbusapi.InvalidState, "1 untracked file")
		assert.FileExists(t, root+"/busy/new")
		s.must("Remove", discard)
		assert.NoDirExists(t, root+"/busy")
		assert.NotContains(t, d.git(t, "src/shop", "branch"), "fix", "a branch without a commit of its own is deleted, too")
	})
	t.Run("a worktree that stays is not used by the next session", func(t *testing.T) {
		s := d.create(t, "left", d.worktree("", ""))
		s.must("Remove", dbusapi.RemoveForce)
		assert.FileExists(t, root+"/left/sub/a")
		again := d.create(t, "left", d.worktree("", ""))
		p := again.properties()
		assert.Equal(t, root+"/left-2", p.text("WorkingDirectory"))
		assert.Equal(t, "corral/left-2", p.text("Worktree"))
		again.must("Remove", removeWorktree|dbusapi.RemoveForce)
		assert.FileExists(t, root+"/left/sub/a")
	})
	t.Run("another session in the worktree keeps it", func(t *testing.T) {
		s := d.create(t, "first", d.worktree("", ""))
		other := d.create(t, "second", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": root + "/first/sub"})
		assertRefused(t, s.do("Remove", discard|dbusapi.RemoveForce), dbusapi.InvalidState, "second")
		assertRefused(t, other.do("Remove", removeWorktree|dbusapi.RemoveForce), dbusapi.InvalidArgs, "second")
		other.must("Remove", dbusapi.RemoveForce)
		s.must("Remove", removeWorktree|dbusapi.RemoveForce)
	})
	t.Run("several at the same time", func(t *testing.T) {
		var all sync.WaitGroup
		errs := make([]error, 4)
		for n := range errs {
			all.Go(func() {
				var id string
				sp := d.worktree("", "")
				errs[n] = d.manager("CreateSession", []any{"command", sp.variants()}, &id, new(any))
				if errs[n] == nil {
					errs[n] = d.manager("RemoveSession", []any{id, removeWorktree | dbusapi.RemoveForce})
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		assert.NotContains(t, d.git(t, "src/shop", "branch"), "corral/shop")
	})
}

// TestWorktree_RemovalBeforeTheFirstRunIsNotReported checks that a requested removal of a session's
// workspace is not reported as a workspace that has vanished.
func TestWorktree_RemovalBeforeTheFirstRunIsNotReported(t *testing.T) {
	d := startWithRepository(t)
	sp := d.worktree("", "")
	sp["Start"] = false
	s := d.create(t, "plan", sp)
	s.waitState("created")
	mark := d.signals.mark()
	s.must("Remove", removeWorktree)
	d.waitRemoved(t, mark, "plan")
	signals, _ := d.signals.since(mark)
	for _, signal := range signals {
		c, ok := stateChange(signal)
		assert.False(t, ok, "it was never %s", c.after)
	}
	assert.NotContains(t, d.log.String(), "orphaned")
}

func TestWorktree_InvalidRequestsAreRefused(t *testing.T) {
	d := startWithRepository(t)
	d.write("plain/a", "")
	d.write("state/corral/sessions/blocked/a", "")
	taken := d.create(t, "taken", d.worktree("", ""))
	before := d.git(t, "src/shop", "worktree", "list") + d.git(t, "src/shop", "for-each-ref")
	for _, row := range []struct {
		name string
		id   string
		sp   spec
		err  string
		text string
	}{
		{"no repository", "a", spec{"WorkingDirectory": d.dir + "/plain", "Worktree": ""}, dbusapi.InvalidArgs,
			"not a git repository"},
		{"an option for a branch", "a", spec{"Worktree": "--force"}, dbusapi.InvalidArgs, "cannot be the name of a branch"},
		{"a branch that is checked out", "a", spec{"Worktree": "main"}, dbusapi.InvalidArgs, "already checked out"},
		{"a name that is too long", "a", spec{"Worktree": strings.Repeat("b", 1000)}, dbusapi.LimitsExceeded, "Worktree"},
		{"an id that is taken", "taken", spec{"Worktree": ""}, dbusapi.SessionExists, "taken"},
		{"a directory in place of the session's, found once the worktree was created", "blocked", spec{"Worktree": ""},
			dbusapi.SessionExists, "a directory is in the way"},
	} {
		t.Run(row.name, func(t *testing.T) {
			sp := d.worktree("", "")
			for key, value := range row.sp {
				sp[key] = value
			}
			_, err := d.tryCreate(t, row.id, sp)
			assertRefused(t, err, row.err, row.text)
			assert.Equal(t, before, d.git(t, "src/shop", "worktree", "list")+d.git(t, "src/shop", "for-each-ref"))
		})
	}
	assertRefused(t, taken.do("Remove", dbusapi.RemoveDiscard), dbusapi.InvalidArgs, "flags")
	assert.Equal(t, []string{"taken"}, d.ids(t))
}

// TestDaemonCrash_DuringWorktreeCreation checks that afterwards either a session in the worktree
// exists, or neither the worktree nor its branch.
func TestDaemonCrash_DuringWorktreeCreation(t *testing.T) {
	d := startWithRepository(t)
	before := d.git(t, "src/shop", "worktree", "list") + d.git(t, "src/shop", "for-each-ref")
	for n, step := range worktreeSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("tree-%d", n)
			sp := d.worktree("", "")
			sp["Start"] = false
			d.relaunchWithFailpoint(t, step.point)
			s, _ := d.tryCreate(t, id, sp)
			d.waitKilled(t)
			assert.DirExists(t, d.dir+"/.local/share/corral/worktrees/"+id)
			d.launch()
			if step.state == "" {
				assert.NotContains(t, d.ids(t), id)
			} else {
				s.waitState(step.state)
				s.must("Remove", removeWorktree)
			}
			testbed.Poll(t, "nothing is left of "+id, func() bool {
				left, err := os.ReadDir(d.dir + "/.local/share/corral/worktrees")
				return err == nil && len(left) == 0
			})
			assert.Equal(t, before, d.git(t, "src/shop", "worktree", "list")+d.git(t, "src/shop", "for-each-ref"))
		})
	}
	t.Run("remove.worktree", func(t *testing.T) {
		d.relaunchWithFailpoint(t, "remove.worktree")
		s := d.create(t, "gone", d.worktree("", ""))
		_ = s.do("Remove", removeWorktree|dbusapi.RemoveForce)
		d.waitKilled(t)
		d.launch()
		s.waitState("stopped")
		s.must("Remove", removeWorktree)
		assert.Equal(t, before, d.git(t, "src/shop", "worktree", "list")+d.git(t, "src/shop", "for-each-ref"))
	})
}

// TestWorktree_StrayInUseIsKept checks that a leftover worktree with files of the user is reported
// and kept.
func TestWorktree_StrayInUseIsKept(t *testing.T) {
	d := startWithRepository(t)
	d.relaunchWithFailpoint(t, "create.worktree-made")
	_, _ = d.tryCreate(t, "stray", d.worktree("", ""))
	d.waitKilled(t)
	d.write(".local/share/corral/worktrees/stray/mine", "")
	d.launch()
	testbed.Poll(t, "it is logged", func() bool { return strings.Contains(d.log.String(), "1 untracked file") })
	assert.FileExists(t, d.dir+"/.local/share/corral/worktrees/stray/mine")
}

// setUpBy configures the commands that set the worktrees of the repository up and tear them down.
func (d *corrald) setUpBy(lines string) {
	d.write("config/corral/repositories/shop.repository", "[Match]\nPath="+d.dir+"/src/shop\n[Worktree]\n"+lines)
}

// TestDaemonCrash_DuringSetup kills the daemon while the worktree of a session is set up: the next
// one begins the setup again, and starts the agent.
func TestDaemonCrash_DuringSetup(t *testing.T) {
	d := startWithRepository(t)
	d.setUpBy("SetupCommand=sh -c 'echo $CORRAL_SESSION >>" + d.dir + "/setups'\n")
	for n, step := range setupSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("setup-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			s, _ := d.tryCreate(t, id, d.worktree("", ""))
			d.waitKilled(t)
			d.launch()
			s.waitState(step.state)
			text, err := os.ReadFile(d.dir + "/setups")
			require.NoError(t, err)
			assert.Contains(t, string(text), id+"\n")
			s.must("Remove", discard|dbusapi.RemoveForce)
		})
	}
}

// TestSetup_BeginsAgainAfterARestart: corrald exits on request while a setup runs, and nothing of
// the setup remains.
func TestSetup_BeginsAgainAfterARestart(t *testing.T) {
	d := startWithRepository(t)
	d.setUpBy("SetupCommand=sh -c 'mkdir " + d.dir + "/begun && exec sleep 1000 || exit 0'\n")
	require.NoError(t, d.manager("Reload", nil))
	created := make(chan *testSession, 1)
	go func() {
		s, _ := d.tryCreate(t, "slow", d.worktree("", ""))
		created <- s
	}()
	testbed.Poll(t, "the setup runs", func() bool {
		_, err := os.Stat(d.dir + "/begun")
		return err == nil
	})
	d.stop()
	assert.Empty(t, activeWorktreeUnits(t))
	s := <-created
	d.launch()
	s.waitState("running")
	s.must("Remove", discard|dbusapi.RemoveForce)
}
