package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAttach_OpensAWindowOfTheUsersTmux(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newView(t, stage, "100", "24", "exec sleep infinity")
	attach := func(command string) { v.tmux("new-window", command+"; echo it ended with $?; exec sleep infinity") }
	attach("corralctl attach alpha")
	v.shows("The repeater")
	assert.Contains(t, v.tmux("list-windows", "-F", "#{window_name} shows #{@corral-session}"), "alpha (sh) shows alpha\n")
	v.tmux("last-window")
	v.shows("alpha is in a window of this tmux, and Ctrl-q detaches; corralctl attach --here alpha", "it ended with 0")

	// A second time the window is selected; a terminal that has only inherited TMUX is none of its
	// panes.
	attach("corralctl attach alpha")
	v.shows("The repeater")
	v.keys("-l", "one window")
	v.keys("Enter")
	v.shows("heard one window")
	assert.Equal(t, "4\n", v.tmux("display-message", "-p", "#{session_windows}"))
	attach("script -qec 'corralctl attach alpha' /dev/null")
	v.shows("heard one window", "[alpha]")
	v.keys("C-q")
	v.shows("detached from alpha; it keeps running")

	// In this pane, on demand.
	attach("corralctl attach --here alpha")
	v.shows("[alpha]")
	v.keys("C-b", "d")
	v.shows("detached from alpha; it keeps running")
}

func TestAttach_RestoresTheTerminal(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newView(t, stage, "100", "24", `PS1=prompt: exec bash --norc -i`)
	v.shows("prompt:")
	v.keys("corralctl attach alpha", "Enter")
	v.shows("The repeater")
	v.keys("C-b", "C-z") // tmux's suspend-client: both processes are stopped, and the shell has the terminal
	v.shows("Stopped")
	v.keys("fg", "Enter")
	v.shows("[alpha]")
	v.keys("-l", "back again")
	v.keys("Enter")
	v.shows("heard back again")
	stage.run(t, "pkill -TERM -f '^corralctl attach alpha$'", "")
	v.shows("prompt:")
	v.keys("echo code $?; stty -a | grep -o ' icanon'", "Enter")
	v.shows("code 143", " icanon")
}
