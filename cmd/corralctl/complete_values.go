package main

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/internal/safefile"
)

// optionChoices returns the candidates for an option's value. Kind is the name that help uses for
// it.
func optionChoices(kind string, option *pflag.Flag, args []string) []choice {
	words := map[string][]string{
		"COLUMNS": columnNames(), "STATES": statesAndActivities, "SIGNAL": signalNames(), "WHOM": word.Recipients,
		"MODE": {"short", "pretty", "off"}, "FORMAT": monitorFormats, "AGENT": slices.Sorted(maps.Keys(agentHooks)),
		"REASON": word.Reasons, "WHAT": word.LoginActions, "NAMES": propertyNames(len(args) == 0),
	}
	switch {
	case kind == "HOSTS":
		return hostChoices()
	case kind == "PROFILE":
		return sandboxChoices()
	case kind == "NAME=VALUE" && option.Name == "property":
		return unitPropertyChoices()
	case kind == "NAME=VALUE":
		return variableChoices()
	}
	return choicesOf(words[kind]...)
}

// applicable has for a verb whether it can do something with a session, if --all does not include
// exactly those.
var applicable = map[string]func(dbusapi.SessionRow) bool{
	"resume": func(s dbusapi.SessionRow) bool {
		return hasEnded(s) && !isArchived(s) && s.State != word.Created || s.State == word.Stale || s.State == word.Orphaned
	},
	"stop": isLive, "attach": isLive, "open": isLive, "wait": isLive,
	"ack": func(s dbusapi.SessionRow) bool { return s.Attention != "" },
	"rm":  isAny,
}

// sessionChoices returns the sessions that the verb can do something with. It asks corrald, or
// reads the records from disk if corrald is not running; it never starts corrald.
func (c *ctl) sessionChoices(ctx context.Context, cmd *cobra.Command, word string) []choice {
	want := applicable[cmd.Name()]
	if want == nil {
		want = func(s dbusapi.SessionRow) bool { return isInAll(cmd.Name(), s) }
	}
	var choices []choice
	if len(c.host) == 0 && c.machine == "" && !strings.Contains(word, ":") {
		conf, _, _ := config.Load(configDirs())
		for _, name := range conf.Hosts.Names {
			choices = append(choices, choice{name + ":", "a host"})
		}
	}
	for _, s := range c.sessionRows(ctx, word) {
		if want(s) {
			about := s.Agent + ", " + s.State
			shown := client.Session{State: s.State, Activity: s.Activity, Attention: s.Attention}
			if activity, _ := wording.Activity(shown); activity != "-" && wording.NeedsAttention(shown) {
				about += ", " + activity
			}
			choices = append(choices, choice{s.ID, about})
		}
	}
	slices.SortFunc(choices, func(a, b choice) int { return strings.Compare(a.word, b.word) })
	return choices
}

// sessionRows returns the sessions of the hosts that the command line or the word names.
func (c *ctl) sessionRows(ctx context.Context, word string) []dbusapi.SessionRow {
	c.unattended = true
	if c.selectHostsOf([]string{word}) != nil {
		return nil
	}
	if c.isRemote() {
		ctx, cancel := context.WithTimeout(ctx, completeHostTimeout)
		defer cancel()
		bus, err := c.connect(ctx)
		if err != nil {
			return nil
		}
		rows, _ := bus.ListSessions(ctx) // of the hosts that answer
		return rows
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	bus, err := c.connect(ctx)
	if err == nil {
		if running, err := bus.Running(ctx); err == nil && running {
			rows, _ := bus.ListSessions(ctx)
			return rows
		}
	}
	sessions, _ := savedSessions(wording.UnknownState)
	return rowsOf(sessions)
}

func agentChoices() []choice {
	agents, _ := config.LoadAgents(configDirs())
	var choices []choice
	for _, name := range agents.Known(localSpecifiers()) {
		agent, _ := agents.Find(name)
		choices = append(choices, choice{name, agent.Description})
	}
	return choices
}

// localSpecifiers returns the values of specifiers that are the same for all agents of this user.
func localSpecifiers() config.Specifiers {
	return config.Specifiers{Home: os.Getenv("HOME"), ConfigHome: config.ConfigHome()}
}

// propertyNames returns the names of the properties of a session, with manager also those of
// corrald.
func propertyNames(manager bool) []string {
	properties := dbusapi.SessionProperties
	if manager {
		properties = slices.Concat(properties, dbusapi.ManagerProperties) // without an ID yet, it may be either
	}
	var names []string
	for _, p := range properties {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func unitPropertyChoices() []choice {
	names := propertysyntax.Names()
	for i := range names {
		names[i] += "="
	}
	return choicesOf(names...)
}

// variableChoices returns the names in the caller's environment. A value can be written after a
// name; without one, the caller's value is passed.
func variableChoices() []choice {
	var names []string
	for _, entry := range os.Environ() {
		if name, _, ok := strings.Cut(entry, "="); ok && environment.ValidName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return choicesOf(names...)
}

func signalNames() []string {
	var names []string
	for number := range unix.Signal(32) {
		if name := unix.SignalName(number); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// hostChoices returns the names of Hosts= in corral.conf, its groups, and the hosts of ssh.
func hostChoices() []choice {
	conf, _, _ := config.Load(configDirs())
	var choices []choice
	for _, name := range conf.Hosts.Names {
		choices = append(choices, choice{name, conf.Hosts.Destinations[name]})
	}
	for group, names := range conf.Hosts.Groups {
		choices = append(choices, choice{"@" + group, strings.Join(names, ", ")})
	}
	choices = append(choices, choice{"@" + config.GroupOfAll, "this machine and all of Hosts="},
		choice{config.LocalHost, "this machine"})
	for _, name := range sshHosts() {
		if conf.Hosts.Destinations[name] == "" {
			choices = append(choices, choice{word: name})
		}
	}
	slices.SortFunc(choices, func(a, b choice) int { return strings.Compare(a.word, b.word) })
	return choices
}

var sshHost = regexp.MustCompile(`(?im)^[ \t]*host[ \t]+(.*)$`)

// sshHosts returns the host names in the user's ssh_config(5).
func sshHosts() []string {
	home, _ := os.UserHomeDir()
	text, _ := safefile.ReadLinked(home+"/.ssh/config", 1<<20)
	var hosts []string
	for _, m := range sshHost.FindAllStringSubmatch(string(text), -1) {
		for host := range strings.FieldsSeq(m[1]) {
			if !strings.ContainsAny(host, "*?!") {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}
