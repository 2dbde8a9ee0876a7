package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// verb is one thing that corralctl does. Help is printed from these; a verb without a summary is left out of it.
type verb struct {
	name    string
	args    string
	summary string
	details string // what its own help says below the summary, "" for nothing; ends with a newline
	pages   bool   // long output goes through the pager
	lenient bool   // mistakes are told, and it exits with 0 all the same

	// options adds the verb's own options to the set, and returns what to do once they are read.
	options func(*pflag.FlagSet) action
}

// action does what a verb does, with its arguments.
type action func(ctx context.Context, c *ctl, args []string) error

// plainVerb is for a verb without options of its own.
func plainVerb(act action) func(*pflag.FlagSet) action {
	return func(*pflag.FlagSet) action { return act }
}

// bareVerb is the action of a verb that takes no words after it.
func bareVerb(name string, act action) action {
	return func(ctx context.Context, c *ctl, args []string) error {
		if len(args) > 0 {
			return usagef(name, "%s takes no arguments", name)
		}
		return act(ctx, c, args)
	}
}

// verbGroup is one paragraph of the help.
type verbGroup struct {
	title string
	verbs []verb
}

// verbGroups returns all verbs, in the order in which help shows them.
func verbGroups() []verbGroup {
	return []verbGroup{
		{"Sessions", []verb{listVerb, topVerb, runVerb, attachVerb, openVerb, sendVerb, peekVerb, logsVerb, statusVerb, whyVerb, showVerb, waitVerb, monitorVerb}},
		{"Lifecycle", []verb{
			startVerb, stopVerb, restartVerb, resumeVerb, suspendVerb, freezeVerb, thawVerb, killVerb, archiveVerb, removeVerb, cleanVerb,
		}},
		{"Settings", []verb{enableVerb, disableVerb, setPropertyVerb, describeVerb, labelVerb, ackVerb}},
		{"For scripts", []verb{isActiveVerb, isFailedVerb, isWaitingVerb, reportVerb}},
		{"Corral", []verb{agentsVerb, catVerb, editVerb, lingerVerb, doctorVerb, reloadVerb, versionVerb, helpVerb, completeVerb, asUnitVerb}},
	}
}

// elsewhere are the words that other programs have for what a verb does.
var elsewhere = map[string]string{
	"ls": "list", "ps": "list", "list-units": "list", "list-sessions": "list", "new": "run", "create": "run", "remove": "rm", "delete": "rm",
	"tail": "logs", "journal": "logs", "capture": "peek", "send-keys": "send", "exec": "send", "shell": "attach", "join": "attach", "terminate": "stop",
	"kill-session": "rm", "pause": "freeze", "unpause": "thaw", "daemon-reload": "reload", "check": "doctor",
}

func findVerb(name string) (verb, error) {
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if v.name == name {
				return v, nil
			}
		}
	}
	f := &failure{code: exitUsage, message: fmt.Sprintf("unknown verb %q", name), hint: "corralctl help"}
	if near := cmp.Or(elsewhere[name], nearestVerb(name)); near != "" {
		f.hint = "corralctl " + near
	}
	return verb{}, f
}

// nearestVerb is the verb that was probably meant: it begins like name, or at most a third of its letters differ.
func nearestVerb(name string) string {
	best, distance := "", 1+max(1, len(name)/3)
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if len(name) >= 2 && strings.HasPrefix(v.name, name) {
				return v.name
			}
			if d := editDistance(name, v.name); d < distance {
				best, distance = v.name, d
			}
		}
	}
	return best
}

// editDistance counts the letters to add, drop, replace or swap with their neighbour to make a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
