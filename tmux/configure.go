package tmux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/safefile"
)

// lasting is the ending of the configuration that is read after a user's. afterUser is its content:
// what a configuration of a user must not change, since a session whose terminal nobody looks at is
// not to end, and a signal that all was read.
const (
	lasting   = ".lasting"
	afterUser = "set -s exit-empty off\nset -s exit-unattached off\nset -g destroy-unattached off\n" +
		"set -g remain-on-exit on\nset -g remain-on-exit-format ''\nwait-for -S " + configured + "\n"
	configured = "corral-configured"
)

// Bounds of what is read of a configuration, and of the invalid lines that are looked for in one:
// the start of a session waits for it.
const (
	maxConfiguration = 1 << 20 // bytes
	maxInvalid       = 50
	repairTime       = 5 * time.Second
)

// InvalidLine is a line of a user's configuration that tmux does not accept. The line is ignored; all
// others apply.
type InvalidLine struct {
	File string
	Line int    // 0 if tmux does not report it
	Text string // by tmux, for a person
}

func (i InvalidLine) String() string {
	if i.Line == 0 {
		return i.File + ": " + i.Text
	}
	return i.File + ":" + strconv.Itoa(i.Line) + ": " + i.Text
}

// userFlags are the options of a server that reads configurations of a user.
func (t *Tmux) userFlags(user []string) []string {
	if len(user) == 0 {
		return nil
	}
	var flags []string
	for _, file := range append(slices.Clone(user), t.Config+lasting) {
		flags = append(flags, "-f", file)
	}
	return flags
}

// Reconfigure waits until a server has read the configurations of a user that it was started with,
// and returns what is invalid in them. tmux applies nothing of a file in which it cannot parse a
// line; Reconfigure applies the other lines of such a file.
func (t *Tmux) Reconfigure(ctx context.Context, s Session) []InvalidLine {
	// The server keeps what it has to report until a client reads a configuration, or a terminal is
	// attached.
	out, _, err := t.feed(ctx, s, "", "-N", "wait-for", configured, ";", "source-file", os.DevNull)
	if errors.Is(err, context.DeadlineExceeded) {
		return []InvalidLine{{File: "TmuxConfig=", Text: "tmux has not finished reading it within " + commandTimeout.String()}}
	}
	reported, found := parseInvalid(string(out)), map[InvalidLine]bool{}
	applied := map[string]bool{} // by path: what is left of the file was applied
	limited, cancel := deadline.Context(ctx, repairTime)
	defer cancel()
	for len(reported) > 0 && len(found) < maxInvalid {
		next := reported[0]
		reported = reported[1:]
		if !applied[next.File] && next.Line > 0 {
			if text, bad := t.repair(limited, s, next.File); len(bad) > 0 {
				applied[next.File] = true
				reported = append(append(bad, t.apply(ctx, s, next.File, text)...), reported...)
				continue
			}
		}
		found[next] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b InvalidLine) int {
		return strings.Compare(fmt.Sprintf("%s:%9d:%s", a.File, a.Line, a.Text), fmt.Sprintf("%s:%9d:%s", b.File, b.Line, b.Text))
	})
}

// repair returns the lines of a file that tmux can parse, with blank ones in place of those that it
// cannot, and these. It returns no lines where the time is over before it has found all.
func (t *Tmux) repair(ctx context.Context, s Session, file string) (text string, bad []InvalidLine) {
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", nil
	}
	content, err := safefile.Read(path, maxConfiguration)
	if err != nil {
		return "", nil
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	for len(bad) < maxInvalid {
		wrong, ok := t.parse(ctx, s, lines)
		wrong.File = file
		if wrong.Line > len(lines) { // something is not closed
			wrong.Line = t.open(ctx, s, lines)
			wrong.Text += ": not closed before the end of the file"
		}
		switch {
		case ctx.Err() != nil: // nor has tmux parsed what it was asked to
			return "", append(bad, InvalidLine{File: file, Text: "ignored as a whole: its invalid lines were not found within " + repairTime.String()})
		case !ok:
			return strings.Join(lines, "\n") + "\n", bad
		case wrong.Line < 1:
			return "", bad
		}
		bad = append(bad, wrong)
		blank(lines, wrong.Line-1)
	}
	return "", bad
}

// blank empties the line with this index, and those that it continues or that continue it.
func blank(lines []string, at int) {
	for at > 0 && strings.HasSuffix(lines[at-1], `\`) {
		at--
	}
	for more := true; more && at < len(lines); at++ {
		more = strings.HasSuffix(lines[at], `\`)
		lines[at] = ""
	}
}

// open returns the number of the last line in lines from which on tmux can parse none of what they
// begin with.
func (t *Tmux) open(ctx context.Context, s Session, lines []string) int {
	for n := len(lines) - 1; n >= 0 && ctx.Err() == nil; n-- {
		if strings.TrimSpace(lines[n]) == "" {
			continue
		}
		if wrong, ok := t.parse(ctx, s, lines[:n]); !ok || wrong.Line <= n {
			return n + 1
		}
	}
	return 0
}

// parse has tmux parse lines, and returns the first that is wrong.
func (t *Tmux) parse(ctx context.Context, s Session, lines []string) (wrong InvalidLine, ok bool) {
	out, _, _ := t.feed(ctx, s, strings.Join(lines, "\n")+"\n", "-N", "source-file", "-n", "-")
	for _, wrong := range parseInvalid(string(out)) {
		return wrong, true
	}
	return wrong, false
}

// apply has the server execute what is left of a file, and returns what tmux reports.
func (t *Tmux) apply(ctx context.Context, s Session, file, text string) []InvalidLine {
	if text == "" {
		return nil
	}
	text = strings.NewReplacer("#{current_file}", file, "#{d:current_file}", filepath.Dir(file)).Replace(text)
	out, errs, _ := t.feed(ctx, s, text, "-N", "source-file", "-")
	reported := parseInvalid(string(out))
	for message := range strings.Lines(errs) { // for a client, tmux reports no line
		message = strings.TrimSuffix(message, "\n")
		reported = append(reported, InvalidLine{file, lineOf(text, message), message})
	}
	return reported
}

// lineOf returns the number of the only line of a configuration that has what a message is about,
// "option-name" in "invalid option: option-name", 0 if there are several.
func lineOf(text, message string) (number int) {
	_, about, _ := strings.Cut(message, ": ")
	if about == "" {
		return 0
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, about) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			if number > 0 {
				return 0
			}
			number = i + 1
		}
	}
	return number
}

// reported matches what tmux reports of a configuration.
var reported = regexp.MustCompile(`^(/.*?|-):(\d+): (.+)$`)

// parseInvalid reads what tmux reports of configurations.
func parseInvalid(out string) []InvalidLine {
	var all []InvalidLine
	for line := range strings.SplitSeq(out, "\n") {
		if m := reported.FindStringSubmatch(line); m != nil {
			number, _ := strconv.Atoi(m[2])
			all = append(all, InvalidLine{m[1], number, m[3]})
		} else if file, text, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(file, "/") {
			all = append(all, InvalidLine{File: file, Text: text})
		}
	}
	return all
}
