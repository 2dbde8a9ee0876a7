package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/unitname"
)

// commandAgent is the agent that runs any command.
const commandAgent = "command"

var runVerb = verb{name: "run", args: "AGENT [-- ARGS…] | run -- CMD ARGS…",
	summary: "Create a session here and start it", onOptionError: (*ctl).runOptionError,
	options: func(f *pflag.FlagSet) action {
		r := &runOptions{flags: f}
		f.StringVar(&r.spec.ID, "id", "", "the session's `ID`; default: the workspace's name")
		f.StringVar(&r.directory, "dir", "", "the workspace `DIRECTORY`; default: the current one")
		f.StringVar(&r.branch, "worktree", "", "work in a new git worktree, on `BRANCH` or a new one")
		f.Lookup("worktree").NoOptDefVal = generatedBranch
		f.StringVar(&r.spec.Sandbox, "sandbox", "", "confine the agent as this sandbox `PROFILE` describes, or none")
		f.Lookup("sandbox").NoOptDefVal = defaultSandbox
		f.UintVar(&r.ports, "ports", 0, "reserve a `NUMBER` of TCP ports: CORRAL_PORT")
		f.StringVar(&r.spec.Description, "description", "", "a `TEXT` about the session")
		f.StringArrayVarP(&r.environment, "setenv", "E", nil, "set a variable, `NAME=VALUE`, or pass one on, NAME")
		f.StringArrayVarP(&r.properties, "property", "p", nil, "a property of its scope, `NAME=VALUE`: MemoryMax=2G")
		f.StringArrayVar(&r.labels, "label", nil, "attach a label, `KEY=VALUE`, for list to select by")
		f.StringVar(&r.spec.Prompt, "prompt", "", "the first prompt, a `TEXT`; - reads standard input")
		f.StringVar(&r.spec.ConversationID, "conversation", "", "resume the agent's conversation with this `ID`")
		f.StringVar(&r.fork, "fork", "", "begin with a copy of the conversation of `SESSION`")
		f.StringVar(&r.spec.OnLogin, "on-login", "", "`WHAT` to do at login: ignore, resume or start")
		f.BoolVar(&r.spec.Exclusive, "exclusive", false, "refuse if another session has the workspace")
		r.now = nowOption(f)
		f.BoolVar(&r.spec.NoStart, "no-start", false, "create the session without starting it")
		f.BoolVar(&r.spec.NoSetup, "no-setup", false, "do not set up the new worktree")
		f.BoolVar(&r.attach, "attach", false, "attach to the session")
		f.BoolVar(&r.wait, "wait", false, "wait until it has ended and exit with its code")
		f.BoolVarP(&r.follow, "follow", "f", false, "with --wait: print the output of the agent")
		f.BoolVar(&r.sameLimits, "same-limits", false, "limit its memory and CPUs as those of the caller")
		for _, name := range []string{"exclusive", "follow", "same-limits", "no-setup", "ports"} {
			_ = f.SetAnnotation(name, rareOption, nil)
		}
		return r.run
	}}

// defaultSandbox is the sandbox profile of --sandbox without a value.
const defaultSandbox = "workspace"

type runOptions struct {
	flags       *pflag.FlagSet
	spec        client.Spec
	program     string // the agent, or the program of a command; for messages
	directory   string
	branch      string // of --worktree
	fork        string // of --fork
	ports       uint
	environment []string
	properties  []string
	labels      []string
	attach      bool
	wait        bool
	follow      bool // print the output of the agent while waiting
	sameLimits  bool // the limits of the caller
	now         *bool
}

func (r *runOptions) run(ctx context.Context, c *ctl, args []string) error {
	if r.branch == generatedBranch {
		r.branch = ""
	}
	if r.flags.Changed("worktree") {
		r.spec.Worktree = &r.branch
	}
	if r.fork != "" && r.spec.ConversationID != "" {
		return usagef("run", "--fork and --conversation exclude each other")
	}
	if r.flags.Changed("ports") {
		if r.ports > config.MaxPorts {
			return usagef("run", "invalid value \"%d\" for --ports: expected 0 to %d", r.ports, config.MaxPorts)
		}
		count := uint32(r.ports)
		r.spec.Ports = &count
	}
	agent, extra, err := r.parseCommand(c, args)
	if err != nil {
		return err
	}
	r.program, c.now = agent, *r.now
	if err := r.complete(ctx, c); err != nil {
		return usageError(c.name, err)
	}
	if r.attach && !c.onTerminal() { // before a session is created that nobody is attached to
		return &failure{exitFailed, "cannot attach: standard input is not a terminal", "corralctl help run"}
	}
	if agent == commandAgent {
		r.spec.Command, r.program = extra, extra[0]
	} else if len(extra) > 0 {
		r.spec.Arguments = extra
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return c.cannot("run", r.program, err)
	}
	if err := r.checkEncoding(); err != nil {
		return usageError(c.name, err)
	}
	if r.fork != "" {
		if agent, err = r.resolveFork(ctx, c, agent); err != nil {
			return err
		}
	}
	return r.create(ctx, c, bus, agent)
}

// parseCommand splits the arguments into the agent and the agent's arguments. Without an agent,
// after "--", they are a command.
func (r *runOptions) parseCommand(c *ctl, args []string) (agent string, rest []string, err error) {
	dash := r.flags.ArgsLenAtDash()
	switch {
	case r.fork != "" && (dash == 0 || len(args) == 0): // the agent is that of the session
		return "", args, nil
	case len(args) == 1 && args[0] == commandAgent && dash != 0:
		return "", nil, usagef("run", "run %s: missing CMD after --", commandAgent)
	case dash < 0 && len(args) == 1:
		return args[0], nil, nil
	case dash == 1:
		return args[0], args[1:], nil
	case dash == 0 && len(args) > 0:
		return commandAgent, args, nil
	case len(args) == 0:
		return "", nil, usagef("run", "run: missing AGENT, or a command after --")
	}
	if w := r.spec.Worktree; w != nil && *w == "" && len(args) == 2 && !c.isAgent(args[0]) {
		return "", nil, &failure{exitUsage, "run: expected one AGENT, not 2 words; a branch follows =",
			"corralctl run --worktree=" + wording.ShellWords(args)}
	}
	return "", nil, c.tooManyWordsError(args, r.flags)
}

// resolveFork sets the session whose conversation is copied. It returns the agent, by default that
// of this session.
func (r *runOptions) resolveFork(ctx context.Context, c *ctl, agent string) (string, error) {
	id, err := c.resolveOne(ctx, r.fork)
	if err != nil {
		return "", err
	}
	source, err := c.client.Session(ctx, id)
	if err != nil {
		return "", c.cannot("fork", id, err)
	}
	r.spec.ForkedFrom, r.program = id, cmp.Or(agent, source.Agent)
	return r.program, nil
}

// complete sets the rest of the spec from the options, the current directory and, for --prompt=-,
// standard input.
func (r *runOptions) complete(ctx context.Context, c *ctl) error {
	if err := r.checkCombination(c); err != nil {
		return err
	}
	if err := r.addCallerLimits(ctx, c); err != nil {
		return err
	}
	var err error
	if r.spec.WorkingDirectory, err = r.workspace(c); err != nil {
		return err
	}
	if r.spec.Environment, err = r.explicitEnvironment(); err != nil {
		return err
	}
	if r.spec.UnitProperties, err = unitProperties(r.properties); err != nil {
		return err
	}
	if r.spec.Labels, err = parseLabels(r.labels); err != nil {
		return err
	}
	if r.spec.OnLogin != "" && !slices.Contains(word.LoginActions, r.spec.OnLogin) {
		return fmt.Errorf("invalid value %q for --on-login: expected ignore, resume or start", r.spec.OnLogin)
	}
	if r.spec.Prompt == "-" {
		text, err := io.ReadAll(io.LimitReader(c.in, maxText))
		if err != nil {
			return fmt.Errorf("cannot read the prompt: %w", err)
		}
		r.spec.Prompt = strings.TrimSuffix(string(text), "\n")
	}
	return nil
}

// checkCombination returns an error for options that exclude each other.
func (r *runOptions) checkCombination(c *ctl) error {
	switch {
	case r.spec.NoStart && (r.attach || r.wait || *r.now):
		return errors.New("--no-start excludes --attach, --wait and --now")
	case r.spec.NoSetup && r.spec.Worktree == nil:
		return errors.New("--no-setup needs --worktree")
	case c.noBlock && (r.attach || r.wait):
		return errors.New("--no-block excludes --attach and --wait")
	case r.attach && c.wantsJSON():
		return errors.New("--attach and --json exclude each other")
	case r.attach && r.wait:
		return errors.New("--attach and --wait exclude each other")
	case r.follow && (!r.wait || c.wantsJSON()):
		return errors.New("--follow needs --wait, and excludes --json")
	case c.isRemote() && (r.follow || r.sameLimits):
		return errors.New("--follow and --same-limits are for sessions on this machine")
	}
	return nil
}

// workspace returns the absolute path of the requested directory. Its symbolic links are kept:
// os.Getwd returns $PWD if that is the current directory.
func (r *runOptions) workspace(c *ctl) (string, error) {
	if r.fork != "" && r.directory == "" {
		return "", nil // that of the session
	}
	if filepath.IsAbs(r.directory) {
		return filepath.Clean(r.directory), nil
	}
	if c.isRemote() {
		return "", fmt.Errorf("invalid value for --dir: expected an absolute path on %s", c.onlyHost())
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the current directory: %w", err)
	}
	return filepath.Join(here, r.directory), nil
}

// explicitEnvironment returns the variables of -E, which belong to the session. The caller's own
// environment is passed separately, for the first run only, and never to another machine.
func (r *runOptions) explicitEnvironment() ([]string, error) {
	var variables []string
	for _, entry := range r.environment {
		name, _, assigned := strings.Cut(entry, "=")
		if !environment.ValidName(name) {
			return nil, fmt.Errorf("invalid variable %q: expected NAME=VALUE or NAME", entry)
		}
		if !assigned {
			value, ok := os.LookupEnv(name)
			if !ok {
				return nil, fmt.Errorf("-E %s: the variable is not set", name)
			}
			entry = name + "=" + value
		}
		variables = slices.DeleteFunc(variables, func(other string) bool { return strings.HasPrefix(other, name+"=") })
		variables = append(variables, entry)
	}
	return variables, nil
}

func parseLabels(texts []string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid label %q: expected KEY=VALUE", text)
		}
		if err := checkLabel(key, value); err != nil {
			return nil, err
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

// checkLabel rejects an invalid value of the labels that corrald interprets; all others may have
// any.
func checkLabel(key, value string) error {
	var err error
	switch {
	case value == "":
	case key == config.NotifyLabel:
		_, err = config.ParseNotify(value)
	case key == config.OnLimitLabel:
		_, err = config.ParseOnLimit(value)
	}
	if err != nil {
		return fmt.Errorf("label %s: %w", key, err)
	}
	return nil
}

// checkEncoding returns an error for text that cannot be sent: a string on the bus is UTF-8 without
// NUL.
func (r *runOptions) checkEncoding() error {
	var branch []string
	if r.spec.Worktree != nil {
		branch = []string{*r.spec.Worktree}
	}
	for _, field := range []struct {
		name   string
		values []string
	}{
		{"the command", r.spec.Command}, {"an argument", r.spec.Arguments},
		{"the workspace", []string{r.spec.WorkingDirectory}}, {"the prompt", []string{r.spec.Prompt}},
		{"the environment", r.spec.Environment}, {"the description", []string{r.spec.Description}}, {"a label", r.labels},
		{"the id", []string{r.spec.ID}}, {"the conversation", []string{r.spec.ConversationID}}, {"the branch", branch},
	} {
		for _, value := range field.values {
			if !isSendable(value) {
				return fmt.Errorf("%s is not valid UTF-8 text", field.name)
			}
		}
	}
	return nil
}

func isSendable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// create creates the session and then attaches or waits if that was requested.
func (r *runOptions) create(ctx context.Context, c *ctl, bus *client.Client, agent string) error {
	var waiting <-chan client.Event
	var interrupts chan os.Signal
	if r.wait {
		interrupts = notifyInterrupts()
		// before the session exists, so that its end is not missed, however early it comes
		var err error
		if waiting, err = bus.Watch(ctx); err != nil {
			return c.cannot("run", r.program, err)
		}
	}
	starting := newProgress(c, "Starting", []string{r.program})
	creating, cancel := c.withTimeout(ctx)
	create := bus.CreateSession
	if c.noBlock {
		create = bus.PostCreate
	}
	id, err := create(creating, agent, r.spec)
	cancel()
	starting.end()
	if err != nil {
		return r.cannotRun(ctx, c, bus, agent, err)
	}
	if !c.quiet {
		c.warnOfNewAccount(agent)
	}
	if c.wantsJSON() {
		return r.printCreated(ctx, c, id, waiting, interrupts)
	}
	var queued *client.Session
	if !r.spec.NoStart && !c.noBlock && (!c.quiet || r.attach) {
		queued = c.queued(ctx, id)
	}
	if !c.quiet && !r.follow {
		r.printStarted(c, agent, id, queued)
	}
	switch {
	case r.attach && queued != nil:
		return queuedError(*queued)
	case r.attach:
		return c.attachTo(ctx, []string{id}, attachOptions{})
	case r.wait:
		if err := c.out.Flush(); err != nil {
			return err
		}
		return r.await(ctx, c, id, waiting, interrupts)
	}
	return nil
}

// printCreated prints the session as JSON, with --wait after it has ended.
func (r *runOptions) printCreated(ctx context.Context, c *ctl, id string, waiting <-chan client.Event,
	interrupts <-chan os.Signal,
) error {
	var ended error
	if r.wait {
		ended = r.await(ctx, c, id, waiting, interrupts)
	}
	s, err := c.client.Session(ctx, id)
	if err == nil {
		err = c.printJSON(s)
	}
	if err != nil {
		return c.cannot("run", id, err)
	}
	return ended
}

// printStarted reports what was done: on a terminal with the next command, elsewhere with the
// scope. Queued is the session if it is queued.
func (r *runOptions) printStarted(c *ctl, agent, id string, queued *client.Session) {
	done := "Started"
	next := "Attach: " + c.withHost("corralctl attach "+id)
	switch {
	case r.spec.NoStart:
		done, next = "Created", "Start: "+c.withHost("corralctl start "+id)
	case c.noBlock:
		done = "Starting"
	}
	switch {
	case queued != nil && c.outTTY != nil && !r.attach:
		c.print("Session %s is %s. Start it now: %s\n", id, wording.Queued(*queued),
			c.withHost("corralctl "+beginNow(*queued)))
	case queued != nil:
		c.print("Session %s is %s.\n", id, wording.Queued(*queued))
	case c.outTTY != nil && !r.attach:
		c.print("%s session %s. %s\n", done, id, next)
	case r.spec.NoStart:
		c.print("%s session %s.\n", done, id)
	default:
		_, there := client.SplitID(id)
		c.print("%s session %s (%s).\n", done, id, unitname.Scope(agent, there))
	}
}

// cannotRun is cannotCreate. If the agent does not exist, it suggests a similar agent or the
// command after "--".
func (r *runOptions) cannotRun(ctx context.Context, c *ctl, bus *client.Client, agent string, err error) error {
	f := r.cannotCreate(c, err)
	if dbusapi.ShortErrorName(err) != dbusapi.NoSuchAgent {
		return f
	}
	if c.isProgram(agent) {
		f.hint = c.withDashes(c.argumentIndex(agent, 0, r.flags))
		return f
	}
	rows, err := bus.ListAgents(ctx)
	if err != nil {
		return f
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.Name)
	}
	if near := nearestWord(agent, names); near != "" {
		f.hint = "corralctl run " + near
	}
	return f
}

// cannotCreate describes why a session was not created or not started, with a command that helps.
func (r *runOptions) cannotCreate(c *ctl, err error) *failure {
	short, created := dbusapi.ShortErrorName(err), ""
	switch short {
	case dbusapi.StartFailed, dbusapi.TmuxFailed, dbusapi.InvalidState, dbusapi.NotTrusted:
		created = r.created(c)
	}
	f := c.cannotFor("run", r.program, created, err)
	switch {
	case short == dbusapi.ConversationBusy:
		f.hint = c.holderHint(client.Session{Id: r.spec.ID, ConversationId: r.spec.ConversationID})
	case short == dbusapi.SessionExists && r.spec.ID != "":
		f.hint = "corralctl attach " + r.spec.ID
	case short == dbusapi.StartFailed && created == "" && r.spec.Worktree != nil &&
		(len(r.spec.Command) == 0 || c.isProgram(r.spec.Command[0])):
		f.hint = "corralctl doctor" // it reports whether git is installed
	}
	return f
}

// created returns the id of the session that a failed call has created, "" if there is none: one of
// the same name may be older.
func (r *runOptions) created(c *ctl) string {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	sessions, _ := c.client.Sessions(ctx)
	for _, s := range sessions {
		isNew := s.Timestamp >= uint64(c.started.UnixMicro())
		notStarted := s.Result == word.StartFailed || s.State == word.Created && s.Reason != ""
		if isNew && (s.Id == c.onlyHost().ID(r.spec.ID) || r.spec.ID == "" && notStarted) {
			return s.Id
		}
	}
	return ""
}
