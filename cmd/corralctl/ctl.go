package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// ctl is one invocation of corralctl: its global options, its streams, and its connection after the
// first call of connect.
type ctl struct {
	globals
	name       string   // of the verb
	args       []string // of the verb, as given
	unattended bool     // nobody can be asked for a password
	lenient    bool     // the exit code is always 0
	in         *os.File
	out        *bufio.Writer
	outTTY     *terminal // nil if stdout is not a terminal
	err        io.Writer
	errTTY     *terminal
	hosts      []hosts.Host       // that the command line is about; none for this machine
	silent     []client.HostError // of several hosts, those that could not be asked
	client     *client.Client
	now        bool           // --now: start even if MaxRunning= does not permit it
	yes        bool           // --yes, or an option that implies it: do not ask
	impliesAll bool           // the arguments of the verb stand for --all
	commands   *cobra.Command // the root command; its subcommands are the verbs
	pager      *pager
	started    time.Time
}

// globals are the options that every verb takes.
type globals struct {
	host     []string
	machine  string
	json     string
	noLegend bool
	plain    bool
	noPager  bool
	full     bool
	all      bool
	quiet    bool
	noBlock  bool
	timeout  timeSpan
	help     bool
	version  bool
}

func (g *globals) register(f *pflag.FlagSet) {
	f.StringSliceVarP(&g.host, "host", "H", g.host, "work on other machines; `HOSTS`: names for ssh, separated by commas")
	f.StringVarP(&g.machine, "machine", "M", g.machine, "work in a container, `MACHINE`, or as user USER@")
	f.StringVarP(&g.json, "json", "j", g.json, "print JSON; `MODE`: short, pretty or off")
	f.Lookup("json").NoOptDefVal = "auto"
	f.BoolVar(&g.noLegend, "no-legend", g.noLegend, "omit headings and footer")
	f.BoolVar(&g.plain, "plain", g.plain, "omit colours, dots and trees")
	f.BoolVar(&g.noPager, "no-pager", g.noPager, "do not use a pager")
	f.BoolVarP(&g.full, "full", "l", g.full, "do not shorten columns and lines")
	f.BoolVarP(&g.all, "all", "a", g.all, "every session; with list and top: archived ones too")
	f.BoolVarP(&g.quiet, "quiet", "q", g.quiet, "print errors only")
	f.BoolVar(&g.noBlock, "no-block", g.noBlock, "return without waiting for the operation to finish")
	f.Var(&g.timeout, "timeout", "wait at most this `TIME`, such as 90 or \"1min 30s\"")
	f.BoolVarP(&g.help, "help", "h", g.help, "print help")
	f.BoolVar(&g.version, "version", g.version, "print the version")
}

// run runs corralctl with the given arguments and streams. It returns the exit code.
func run(ctx context.Context, args []string, in, out, errs *os.File) int {
	c := &ctl{in: in, out: bufio.NewWriterSize(out, 32<<10), err: errs, outTTY: openTerminal(out),
		errTTY: openTerminal(errs), started: time.Now()}
	err := c.dispatch(ctx, args)
	code := c.report(err)
	if c.lenient {
		code = 0
	}
	if c.client != nil {
		_ = c.client.Close()
	}
	if err := c.finish(); err != nil && code == 0 {
		fmt.Fprintf(c.err, "corralctl: cannot write: %v\n", err)
		code = exitFailed
	}
	return code
}

// dispatch reads the options before the verb; cobra then finds the verb, reads its options and runs
// it. Without a verb, it lists the sessions. Cobra would not find the verb in `-qH HOST list`, and
// would accept options of the verb before it.
func (c *ctl) dispatch(ctx context.Context, args []string) error {
	root := c.newCommands()
	c.commands = root
	if err := root.ParseFlags(args); err != nil {
		return optionError("", root.Flags(), err)
	}
	args = root.Flags().Args()
	if len(args) == 0 && !c.help && !c.version {
		args = []string{listVerb.name}
	}
	if len(args) > 0 {
		c.args = args[1:]
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		args = append(args[:1:1], c.assignShortOptions(args[1:])...)
		c.completeValues(args[1:])
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// perform runs a verb whose options have been read.
func (c *ctl) perform(cmd *cobra.Command, v verb, act action, args []string) error {
	c.name, c.lenient = v.name, v.lenient
	if c.version {
		return printVersion(c)
	}
	if err := c.selectHosts(cmd, args); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "auto", "short", "pretty", "off"}, c.json) {
		return usageError(v.name, fmt.Errorf("invalid value %q for --json: expected short, pretty or off", c.json))
	}
	if v.args == "" && len(args) > 0 {
		return usagef(v.name, "%s takes no arguments%s", v.name, v.useless)
	}
	if v.pages {
		c.startPager()
	}
	ctx := cmd.Context()
	// for these verbs --timeout has another or an additional meaning
	if !slices.Contains([]string{"stop", "wait", "run"}, v.name) {
		limited, cancel := c.withTimeout(ctx)
		defer cancel()
		ctx = limited
	}
	err := act(ctx, c, args)
	if len(c.silent) > 0 {
		_ = c.out.Flush()
		c.reportSilent()
		if err == nil && !slices.Contains(readingVerbs, v.name) {
			err = exit(exitUnreachable)
		}
	}
	return err
}

// connect returns the connection to corrald. The first call establishes it.
func (c *ctl) connect(ctx context.Context) (*client.Client, error) {
	if c.client != nil {
		return c.client, nil
	}
	var err error
	if c.isRemote() {
		c.client, err = c.connectHosts(ctx)
	} else {
		c.client, err = c.prepared(hosts.Host{})(client.Connect(ctx))
	}
	return c.client, err
}

// print writes to stdout. It escapes control characters of string arguments, because they may come
// from an agent.
func (c *ctl) print(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = wording.Printable(s)
		}
	}
	fmt.Fprintf(c.out, format, args...)
}

// hasColour returns whether stdout accepts colours.
func (c *ctl) hasColour() bool { return c.outTTY != nil && c.outTTY.colour && !c.plain }

// finish writes the buffered output. A pager that the user quit early is not an error.
func (c *ctl) finish() error {
	err := c.out.Flush()
	if c.pager == nil {
		return err
	}
	if c.pager.command != nil {
		err = nil
	}
	return errors.Join(err, c.pager.close())
}

// timeSpan is an option whose value is a time span.
type timeSpan struct {
	time.Duration
	set bool
}

func (s *timeSpan) String() string {
	if !s.set {
		return ""
	}
	return s.Duration.String()
}

func (s *timeSpan) Type() string { return "TIME" }

func (s *timeSpan) Set(text string) error {
	d, err := config.ParseTimeSpan(text)
	if err != nil || d == config.Infinity {
		return errors.New("expected a time such as 90 or \"1min 30s\"")
	}
	s.Duration, s.set = d, true
	return nil
}
