package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// selectHosts determines the hosts that the command line is about, from --host=, --machine= and the
// ids among the arguments. A verb that is not about sessions accepts one.
func (c *ctl) selectHosts(cmd *cobra.Command, args []string) error {
	words := idWords(cmd, args)
	if fork := cmd.Flags().Lookup("fork"); fork != nil && fork.Value.String() != "" {
		words = append(words, fork.Value.String())
	}
	if cmd.Flags().Changed("host") && len(c.host) == 0 {
		c.host = []string{""} // which is not this machine
	}
	if cmd.Flags().Changed("machine") && (len(c.host) > 0 || c.machine == "" || strings.HasPrefix(c.machine, "-")) {
		return &failure{code: exitUsage,
			message: fmt.Sprintf("invalid machine %q: expected MACHINE or USER@, without --host", c.machine)}
	}
	if err := c.selectHostsOf(words); err != nil {
		return &failure{code: exitUsage, message: err.Error()}
	}
	if len(c.hosts) > 1 && !acceptsHosts(cmd) {
		return usagef(c.name, "%s takes one host, not %d", c.name, len(c.hosts))
	}
	return nil
}

// selectHostsOf determines the hosts from --host=, --machine= and words that are ids or patterns.
func (c *ctl) selectHostsOf(words []string) (err error) {
	if c.machine != "" {
		c.hosts = []hosts.Host{{Machine: c.machine}}
		return nil
	}
	c.hosts, err = hosts.Select(c.host, words, c.configuredHosts(words))
	return err
}

// configuredHosts reads Hosts= of corral.conf, if a name may be there. corrald and doctor report
// errors of the file.
func (c *ctl) configuredHosts(words []string) config.Hosts {
	if len(c.host) == 0 && !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, ":") }) {
		return config.Hosts{}
	}
	conf, _, _ := config.Load(configDirs())
	return conf.Hosts
}

// idWords returns the arguments that are ids or patterns, as the usage of the verb names them.
func idWords(cmd *cobra.Command, args []string) []string {
	usage, _, _ := strings.Cut(cmd.Use, " | ")
	kinds := strings.Fields(usage)[1:]
	var words []string
	for i, arg := range args {
		if i >= len(kinds) && (len(kinds) == 0 || !strings.Contains(kinds[len(kinds)-1], "…")) {
			break
		}
		switch strings.Trim(kinds[min(i, len(kinds)-1)], "[]…") {
		case "ID", "PATTERN":
			words = append(words, arg)
		}
	}
	return words
}

// acceptsHosts reports whether a verb accepts several hosts: it is about sessions.
func acceptsHosts(cmd *cobra.Command) bool {
	for _, kind := range []string{"ID", "PATTERN"} {
		if strings.Contains(cmd.Use, kind) {
			return cmd.Name() != asUnitVerb.name
		}
	}
	return slices.Contains([]string{topVerb.name, monitorVerb.name}, cmd.Name())
}

// isRemote reports whether the command line is about another machine.
func (c *ctl) isRemote() bool { return len(c.hosts) > 0 }

// hasSeveralHosts reports whether ids name their hosts.
func (c *ctl) hasSeveralHosts() bool { return len(c.hosts) > 1 }

// onlyHost returns the host of a command line that is about one.
func (c *ctl) onlyHost() hosts.Host {
	if len(c.hosts) == 0 {
		return hosts.Host{}
	}
	return c.hosts[0]
}

// hostOf returns the host of a session.
func (c *ctl) hostOf(id string) hosts.Host {
	name, _ := client.SplitID(id)
	return c.hostNamed(name)
}

// hostNamed returns the host with this name in ids.
func (c *ctl) hostNamed(name string) hosts.Host {
	for _, h := range c.hosts {
		if h.Name == name {
			return h
		}
	}
	return hosts.Host{}
}

// isOnHost reports whether a session is on another machine.
func (c *ctl) isOnHost(id string) bool { return !c.hostOf(id).IsLocal() }

// reach returns the arguments of corralctl for a verb about a session.
func (c *ctl) reach(id, verb string) []string {
	if h := c.onlyHost(); h.Name == "" && !h.IsLocal() {
		return []string{c.hostOption(), verb, id}
	}
	return []string{verb, id}
}

// hostOption returns the option that selects the only host.
func (c *ctl) hostOption() string {
	if c.machine != "" {
		return "--machine=" + c.machine
	}
	return "--host=" + strings.Join(c.host, ",")
}

// hostLabel returns the name of the only host, as it was given.
func (c *ctl) hostLabel() string { return strings.Join(c.host, ",") + c.machine }

// hostCommand returns a command line of the only host as a person would run it from here.
func (c *ctl) hostCommand(command string) string {
	h := c.onlyHost()
	switch {
	case h.Machine != "":
		return strings.Replace(command, " --user ", " --user --machine="+h.Machine+" ", 1)
	case h.Destination == "" || c.hasSeveralHosts():
		return command
	}
	return "ssh " + h.Destination + " " + command
}

// connectHosts connects to the selected hosts. Only for a single one, and on a terminal, may ssh
// ask a person for a password.
func (c *ctl) connectHosts(ctx context.Context) (*client.Client, error) {
	all := make([]client.Host, len(c.hosts))
	for i, h := range c.hosts {
		all[i] = client.Host{Name: h.Name, Dial: func(ctx context.Context) (*client.Client, error) {
			return c.prepared(h)(h.Dial(ctx, false))
		}}
	}
	if len(all) == 1 {
		var err error
		h := c.hosts[0]
		if all[0].Connected, err = c.prepared(h)(h.Dial(ctx, !c.unattended && openTerminal(c.in) != nil)); err != nil {
			return nil, err
		}
	}
	return client.ConnectHosts(ctx, all...), nil
}

// prepared returns a function that sets what a new connection sends with calls. The caller's
// environment is not for other machines.
func (c *ctl) prepared(h hosts.Host) func(*client.Client, error) (*client.Client, error) {
	return func(bus *client.Client, err error) (*client.Client, error) {
		if err != nil {
			return nil, err
		}
		bus.Now = c.now
		if h.IsLocal() {
			bus.Environment = callerEnvironment(os.Environ())
		}
		return bus, nil
	}
}

// tolerate returns nil if err means that some of several hosts could not be asked: what the others
// have returned is used, and each of these hosts is reported once, by reportSilent. If no host
// could be asked, it returns only an exit code.
func (c *ctl) tolerate(err error) error {
	var errs client.HostErrors
	if !errors.As(err, &errs) || !c.hasSeveralHosts() {
		return err
	}
	for _, one := range errs {
		isKnown := func(other client.HostError) bool { return other.Host == one.Host }
		if !slices.ContainsFunc(c.silent, isKnown) {
			c.silent = append(c.silent, one)
		}
	}
	if len(c.silent) == len(c.hosts) {
		return exit(exitUnreachable)
	}
	return nil
}

// readingVerbs are the verbs whose exit code is 0 although some of several hosts could not be
// asked.
var readingVerbs = []string{"list", "top", "monitor", "status", "show", "why", "peek", "is-active", "is-failed",
	"is-waiting"}

// reportSilent prints a line for each host that could not be asked.
func (c *ctl) reportSilent() {
	for _, one := range c.silent {
		fmt.Fprintf(c.err, "corralctl: %s\n", wording.Printable(c.outage(one)))
	}
}

// outage describes why the sessions of a host are not known. The error is nil if its bus can be
// reached.
func (c *ctl) outage(e client.HostError) string {
	why := daemonAway
	if e.Err != nil {
		why = c.unreachableReason(e.Err)
	}
	switch {
	case !c.hasSeveralHosts():
		return why
	case client.IsDisconnected(e.Err):
		return fmt.Sprintf("%s cannot be reached: %s", c.hostNamed(e.Host), why)
	}
	return fmt.Sprintf("%s: %s", c.hostNamed(e.Host), why)
}

// execHost replaces this process by a verb on another machine, for verbs that need a file
// descriptor or a terminal there. It passes the options that were given, except for those that
// select the host.
func (c *ctl) execHost(h hosts.Host, verb string, args ...string) error {
	command, err := c.onHost(h, verb, args...)
	if err != nil {
		return err
	}
	return c.exec(command, os.Environ())
}

// resolveHere is resolveOne for a verb that has to run where the session is. For a session of
// another machine, it replaces this process by the verb there, and returns only if that fails.
func (c *ctl) resolveHere(ctx context.Context, verb, word string) (id string, err error) {
	if c.isRemote() && !c.hasSeveralHosts() {
		return "", c.execHost(c.onlyHost(), verb, word)
	}
	if id, err = c.resolveOne(ctx, word); err == nil && c.isOnHost(id) {
		err = c.execHost(c.hostOf(id), verb, id)
	}
	return id, err
}

// onHost returns the command that runs a verb on a host. The arguments may be ids that name it.
func (c *ctl) onHost(h hosts.Host, verb string, args ...string) ([]string, error) {
	cmd, err := c.findVerb(verb)
	if err != nil {
		return nil, err
	}
	words := []string{"corralctl", verb}
	addOption := func(option *pflag.Flag) {
		switch value := option.Value.String(); {
		case !option.Changed || option.Name == "host" || option.Name == "machine":
		case option.Value.Type() == "bool" && value == "true":
			words = append(words, "--"+option.Name)
		default:
			words = append(words, "--"+option.Name+"="+value)
		}
	}
	c.commands.PersistentFlags().VisitAll(addOption)
	cmd.LocalNonPersistentFlags().VisitAll(addOption)
	words = append(words, "--")
	for _, arg := range args {
		words = append(words, strings.TrimPrefix(arg, h.ID("")))
	}
	return h.Command(c.outTTY != nil, words...), nil
}

// exec replaces this process by a command.
func (c *ctl) exec(argv, environment []string) error {
	if len(argv) == 0 {
		return errors.New("the command is empty")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := c.finish(); err != nil {
		return err
	}
	return fmt.Errorf("cannot run %q: %w", argv[0], syscall.Exec(program, argv, environment))
}
