package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAttach_OpensAWindowOfTheUsersTmux(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newTopTerminal(t, stage, "100", "24", "exec sleep infinity")
	attach := func(command string) { v.tmux("new-window", command+"; echo it ended with $?; exec sleep infinity") }
	attach("corralctl attach alpha")
	v.waitFor("The repeater")
	assert.Contains(t, v.tmux("list-windows", "-F", "#{window_name} shows #{@corral-session}"), "alpha (sh) shows alpha\n")
	v.tmux("last-window")
	v.waitFor("alpha is in a window of this tmux, and Ctrl-q detaches; corralctl attach --here alpha", "it ended with 0")

	// The second attach selects the existing window. A terminal that has inherited TMUX is not one of
	// its panes.
	attach("corralctl attach alpha")
	v.waitFor("The repeater")
	v.keys("-l", "one window")
	v.keys("Enter")
	v.waitFor("heard one window")
	assert.Equal(t, "4\n", v.tmux("display-message", "-p", "#{session_windows}"))
	attach("script -qec 'corralctl attach alpha' /dev/null")
	v.waitFor("heard one window", "[alpha]")
	v.keys("C-q")
	v.waitFor("detached from alpha; it keeps running")

	// With --here it attaches in this pane.
	attach("corralctl attach --here alpha")
	v.waitFor("[alpha]")
	v.keys("C-b", "d")
	v.waitFor("detached from alpha; it keeps running")
}

func TestAttach_RestoresTheTerminal(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newTopTerminal(t, stage, "100", "24", `PS1=prompt: exec bash --norc -i`)
	v.waitFor("prompt:")
	v.keys("corralctl attach alpha", "Enter")
	v.waitFor("The repeater")
	v.keys("C-b", "C-z") // tmux's suspend-client: stops both processes and returns to the shell
	v.waitFor("Stopped")
	v.keys("fg", "Enter")
	v.waitFor("[alpha]")
	v.keys("-l", "back again")
	v.keys("Enter")
	v.waitFor("heard back again")
	stage.run(t, "pkill -TERM -f '^corralctl attach alpha$'", "")
	v.waitFor("prompt:")
	v.keys("echo code $?; stty -a | grep -o ' icanon'", "Enter")
	v.waitFor("code 143", " icanon")
}
