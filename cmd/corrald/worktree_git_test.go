package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/unitname"
)

// script writes an executable script below the daemon's home, and returns its path.
func (d *corrald) script(name, text string) string {
	d.t.Helper()
	d.write(name, "#!/bin/sh\n"+text)
	require.NoError(d.t, os.Chmod(d.dir+"/"+name, 0o700))
	return d.dir + "/" + name
}

// spyProgram returns a program that records the control group in which it runs, and leaves a
// process running; as a filter it changes nothing.
func (d *corrald) spyProgram() (program, note string) {
	note = d.dir + "/ran"
	return d.script("spy",
		"grep ^0:: /proc/self/cgroup >>'"+note+"'\nsetsid sleep 1000 </dev/null >/dev/null 2>&1 &\nexec cat\n"), note
}

// activeWorktreeUnits returns the units in which git is running.
func activeWorktreeUnits(t *testing.T) string {
	t.Helper()
	return testbed.Systemctl(t, "list-units", "--state=active,activating,deactivating", "--plain",
		"--no-legend", unitname.WorktreeSteps)
}

// TestRemoveWorktree_ExecutesNothingOfTheRepository checks that a filter and hooks that an agent
// has configured are not executed when the user inspects and removes its worktree.
func TestRemoveWorktree_ExecutesNothingOfTheRepository(t *testing.T) {
	d := startWithRepository(t)
	s := d.create(t, "shop", d.worktree("", ""))
	at := ".local/share/corral/worktrees/shop"
	program, note := d.spyProgram()
	d.git(t, "src/shop", "config", "filter.x.clean", program)
	d.git(t, "src/shop", "config", "core.fsmonitor", program)
	d.write("src/shop/.git/info/attributes", "* filter=x\n")
	d.script("src/shop/.git/hooks/reference-transaction", program+" </dev/null\n")
	d.script("src/shop/.git/hooks/post-index-change", program+" </dev/null\n")
	d.write(at+"/sub/a", "two\n")

	assertRefused(t, s.do("Remove", removeWorktree|dbusapi.RemoveForce), dbusapi.InvalidState, "1 uncommitted change")
	s.waitState("running")
	s.must("Stop", uint64(0))
	assertRefused(t, s.do("Remove", removeWorktree), dbusapi.InvalidState, "1 uncommitted change")
	assert.NoFileExists(t, note)
	d.write(at+"/sub/a", "one\n")
	s.must("Remove", removeWorktree)
	assert.NoDirExists(t, d.dir+"/"+at)
	assert.NoFileExists(t, note)
	assert.Empty(t, activeWorktreeUnits(t))
}

// TestRemoveWorktree_ExecutesNothingOfAFakeSubmodule checks a submodule that an agent can create by
// writing to its worktree only.
func TestRemoveWorktree_ExecutesNothingOfAFakeSubmodule(t *testing.T) {
	d := startWithRepository(t)
	d.git(t, "src/shop", "update-index", "--add", "--cacheinfo",
		"160000,"+d.git(t, "src/shop", "rev-parse", "HEAD")+",lib")
	d.git(t, "src/shop", "commit", "--quiet", "-m", "lib")
	s := d.create(t, "shop", d.worktree("", ""))
	lib := ".local/share/corral/worktrees/shop/lib"
	program, note := d.spyProgram()
	d.write(lib+"/a", "one\n")
	d.git(t, lib, "init", "--quiet")
	d.git(t, lib, "add", ".")
	d.git(t, lib, "commit", "--quiet", "-m", "mine")
	d.git(t, lib, "config", "filter.x.clean", program)
	d.git(t, lib, "config", "core.fsmonitor", program)
	d.write(lib+"/.gitattributes", "* filter=x\n")
	d.write(lib+"/a", "two\n")
	for range 2 {
		assertRefused(t, s.do("Remove", removeWorktree|dbusapi.RemoveForce), dbusapi.InvalidState,
			`unsaved work in submodule "lib"`)
		assert.NoFileExists(t, note)
	}
	s.must("Remove", discard|dbusapi.RemoveForce)
	assert.NoDirExists(t, d.dir+"/.local/share/corral/worktrees/shop")
	assert.NoFileExists(t, note)
}

// TestWorktree_RunsHooksAndFiltersInAUnitOfItsOwn checks that a checkout runs hooks and filters in
// a unit, and that the processes that they leave end with it.
func TestWorktree_RunsHooksAndFiltersInAUnitOfItsOwn(t *testing.T) {
	d := startWithRepository(t)
	program, note := d.spyProgram()
	d.git(t, "src/shop", "config", "filter.x.smudge", program)
	d.write("src/shop/.git/info/attributes", "* filter=x\n")
	d.script("src/shop/.git/hooks/post-checkout", program+" </dev/null\n")
	s := d.create(t, "shop", d.worktree("", ""))
	text, err := os.ReadFile(note)
	require.NoError(t, err)
	root, err := proc.CgroupRoot()
	require.NoError(t, err)
	cgroups := strings.Fields(string(text))
	assert.Len(t, cgroups, 2)
	for _, cgroup := range cgroups {
		assert.Regexp(t, `^0::.*/app-corral\.slice/corral-worktree-shop-\w{8}\.service$`, cgroup)
		assert.NoDirExists(t, root+strings.TrimPrefix(cgroup, "0::"), "no process is left in it")
	}
	s.must("Remove", removeWorktree|dbusapi.RemoveForce)
}

// TestWorktree_HangingFilterBlocksNothingElse checks that a hanging filter delays no other
// repository, and is ended with the daemon; the next daemon finds what was left and removes it.
func TestWorktree_HangingFilterBlocksNothingElse(t *testing.T) {
	for _, row := range []struct {
		name   string
		signal syscall.Signal
	}{{"the daemon is stopped", syscall.SIGTERM}, {"the daemon is killed", syscall.SIGKILL}} {
		t.Run(row.name, func(t *testing.T) {
			d := startWithRepository(t)
			d.write("src/other/a", "one\n")
			d.git(t, "src/other", "init", "--quiet")
			d.git(t, "src/other", "add", ".")
			d.git(t, "src/other", "commit", "--quiet", "-m", "first")
			before := d.git(t, "src/shop", "worktree", "list") + d.git(t, "src/shop", "for-each-ref")
			hang := d.script("hang",
				"trap '' TERM\necho $$ >'"+d.dir+"/pid.new'\nmv '"+d.dir+"/pid.new' '"+d.dir+"/pid'\nexec sleep 1000\n")
			d.git(t, "src/shop", "config", "filter.x.smudge", hang)
			d.write("src/shop/.git/info/attributes", "* filter=x\n")
			ended := make(chan error, 1)
			go func() {
				sp := d.worktree("", "")
				sp["Id"] = "hangs"
				ended <- d.manager("CreateSession", []any{"command", sp.variants()}, new(string), new(any))
			}()
			testbed.Poll(t, "the filter runs", func() bool { _, err := os.Stat(d.dir + "/pid"); return err == nil })
			text, err := os.ReadFile(d.dir + "/pid")
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)

			sp := d.worktree("", "")
			sp["WorkingDirectory"] = d.dir + "/src/other"
			other := d.create(t, "other", sp)
			other.must("Remove", removeWorktree|dbusapi.RemoveForce)
			select {
			case err := <-ended:
				t.Fatalf("the checkout did not hang: %v", err)
			default:
			}
			d.kill(row.signal)
			require.Error(t, testbed.Receive(t, ended, "answer"))
			if row.signal == syscall.SIGTERM {
				assert.Empty(t, activeWorktreeUnits(t))
			}
			d.launch()
			assert.False(t, isRunning(pid))
			testbed.Poll(t, "the worktree and the unit that removed it are gone", func() bool {
				left, err := os.ReadDir(d.dir + "/.local/share/corral/worktrees")
				return err == nil && len(left) == 0 && activeWorktreeUnits(t) == ""
			})
			assert.Equal(t, before, d.git(t, "src/shop", "worktree", "list")+d.git(t, "src/shop", "for-each-ref"))
			assert.NotContains(t, d.ids(t), "hangs")
		})
	}
}

// isRunning reports whether a process exists that is not a zombie.
func isRunning(pid int) bool {
	st, err := proc.Stat(pid)
	return err == nil && st.State != 'Z'
}

// TestWorktree_GitCannotBeRun checks that the error names what cannot be run, and that nothing is
// left of what was created.
func TestWorktree_GitCannotBeRun(t *testing.T) {
	d := startWithRepository(t)
	before := d.git(t, "src/shop", "for-each-ref")
	testbed.Systemctl(t, "mask", "--runtime", unitname.Slice)
	defer testbed.Systemctl(t, "unmask", "--runtime", unitname.Slice)
	_, err := d.tryCreate(t, "shop", d.worktree("", ""))
	assertRefused(t, err, dbusapi.StartFailed, "cannot create a worktree of workspace", "cannot run git",
		"corral-worktree-shop-")
	assert.Equal(t, before, d.git(t, "src/shop", "for-each-ref"))
	assert.NoDirExists(t, d.dir+"/.local/share/corral/worktrees/shop")
}
