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

// overridesSuffix is the file name suffix of the configuration that is read after the user's.
// overrides is its content: settings that the user must not change, so that a session does not end
// while no terminal is attached, and a signal that all files have been read.
const (
	overridesSuffix = ".lasting"
	overrides       = "set -s exit-empty off\nset -s exit-unattached off\nset -g destroy-unattached off\n" +
		"set -g remain-on-exit on\nset -g remain-on-exit-format ''\nwait-for -S " + configured + "\n"
	configured = "corral-configured"
)

// Limits for reading a user's configuration and for finding its invalid lines: the start of the
// session waits for this.
const (
	maxConfiguration = 1 << 20 // bytes
	maxInvalid       = 50
	repairTimeout    = 5 * time.Second
)

// InvalidLine is a line of a user's configuration that tmux does not accept. tmux ignores the line;
// all others apply, unless the text of one of them is that the file is ignored as a whole.
type InvalidLine struct {
	File string
	Line int    // 0 if tmux does not report it
	Text string // tmux's error message
}

func (i InvalidLine) String() string {
	if i.Line == 0 {
		return i.File + ": " + i.Text
	}
	return i.File + ":" + strconv.Itoa(i.Line) + ": " + i.Text
}

// userFlags returns the command-line options for the user's configuration files.
func (t *Tmux) userFlags(user []string) []string {
	if len(user) == 0 {
		return nil
	}
	var flags []string
	for _, file := range append(slices.Clone(user), t.Config+overridesSuffix) {
		flags = append(flags, "-f", file)
	}
	return flags
}

// Reconfigure waits until a server has read the user's configuration files that it was started
// with, and returns their invalid lines. tmux ignores a file entirely if it cannot parse one of its
// lines; Reconfigure applies the other lines of such a file.
func (t *Tmux) Reconfigure(ctx context.Context, s Session) []InvalidLine {
	// The server keeps its error messages until a client reads a configuration file or a terminal is
	// attached.
	out, _, err := t.commandWithInput(ctx, s, "", "-N", "wait-for", configured, ";", "source-file", os.DevNull)
	if errors.Is(err, context.DeadlineExceeded) {
		text := "tmux has not finished reading it within " + commandTimeout.String()
		return []InvalidLine{{File: "TmuxConfig=", Text: text}}
	}
	reported, found := parseInvalid(string(out)), map[InvalidLine]bool{}
	applied := map[string]bool{} // by path: the valid lines of the file were applied
	repairCtx, cancel := deadline.Context(ctx, repairTimeout)
	defer cancel()
	for len(reported) > 0 && len(found) < maxInvalid {
		next := reported[0]
		reported = reported[1:]
		if !applied[next.File] && next.Line > 0 {
			if text, bad := t.repair(repairCtx, s, next.File); len(bad) > 0 {
				applied[next.File] = true
				reported = append(append(bad, t.apply(ctx, s, next.File, text)...), reported...)
				continue
			}
		}
		found[next] = true
	}
	key := func(i InvalidLine) string { return fmt.Sprintf("%s:%9d:%s", i.File, i.Line, i.Text) }
	return slices.SortedFunc(maps.Keys(found), func(a, b InvalidLine) int { return strings.Compare(key(a), key(b)) })
}

// repair returns the lines of a file that tmux can parse, with blank lines in place of the invalid
// ones, and the invalid lines. If it has not found all of them, because the context has ended or
// because there are maxInvalid or more, it returns no text, and the first of the invalid lines is
// the file, which is ignored as a whole.
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
	ignored := func(why string) (string, []InvalidLine) {
		return "", slices.Insert(bad, 0, InvalidLine{File: file, Text: "ignored as a whole: " + why})
	}
	for len(bad) < maxInvalid {
		wrong, ok := t.firstInvalid(ctx, s, lines)
		wrong.File = file
		if wrong.Line > len(lines) { // a block, condition or quotation is not closed
			wrong.Line = t.findUnclosed(ctx, s, lines)
			wrong.Text += ": not closed before the end of the file"
		}
		switch {
		case ctx.Err() != nil: // tmux may not have parsed the lines at all
			return ignored("its invalid lines were not found within " + repairTimeout.String())
		case !ok:
			return strings.Join(lines, "\n") + "\n", bad
		case wrong.Line < 1:
			return ignored(wrong.Text)
		}
		bad = append(bad, wrong)
		blankLine(lines, wrong.Line-1)
	}
	return ignored("it has " + strconv.Itoa(maxInvalid) + " invalid lines or more")
}

// blankLine empties the line with this index and the lines that are joined to it by a backslash.
func blankLine(lines []string, at int) {
	for at > 0 && strings.HasSuffix(lines[at-1], `\`) {
		at--
	}
	for more := true; more && at < len(lines); at++ {
		more = strings.HasSuffix(lines[at], `\`)
		lines[at] = ""
	}
}

// findUnclosed returns the number of the line that opens something which is never closed: the last
// line such that tmux can parse the lines before it, 0 if there is none.
func (t *Tmux) findUnclosed(ctx context.Context, s Session, lines []string) int {
	for n := len(lines) - 1; n >= 0 && ctx.Err() == nil; n-- {
		if strings.TrimSpace(lines[n]) == "" {
			continue
		}
		if wrong, ok := t.firstInvalid(ctx, s, lines[:n]); !ok || wrong.Line <= n {
			return n + 1
		}
	}
	return 0
}

// firstInvalid makes tmux parse the lines without executing them, and returns the first invalid
// one.
func (t *Tmux) firstInvalid(ctx context.Context, s Session, lines []string) (wrong InvalidLine, ok bool) {
	out, _, _ := t.commandWithInput(ctx, s, strings.Join(lines, "\n")+"\n", "-N", "source-file", "-n", "-")
	for _, wrong := range parseInvalid(string(out)) {
		return wrong, true
	}
	return wrong, false
}

// apply makes the server execute the valid lines of a file, and returns the errors that tmux
// reports.
func (t *Tmux) apply(ctx context.Context, s Session, file, text string) []InvalidLine {
	if text == "" {
		return nil
	}
	text = strings.NewReplacer("#{current_file}", file, "#{d:current_file}", filepath.Dir(file)).Replace(text)
	out, errs, _ := t.commandWithInput(ctx, s, text, "-N", "source-file", "-")
	reported := parseInvalid(string(out))
	for message := range strings.Lines(errs) { // tmux reports no line number to a client
		message = strings.TrimSuffix(message, "\n")
		reported = append(reported, InvalidLine{file, lineOf(text, message), message})
	}
	return reported
}

// lineOf returns the number of the only line that contains the subject of an error message, such as
// "option-name" in "invalid option: option-name". It returns 0 if there are several or none.
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

// messagePattern matches an error message of tmux about a line of a configuration.
var messagePattern = regexp.MustCompile(`^(/.*?|-):(\d+): (.+)$`)

// parseInvalid parses the error messages of tmux about configuration files.
func parseInvalid(out string) []InvalidLine {
	var all []InvalidLine
	for line := range strings.SplitSeq(out, "\n") {
		if m := messagePattern.FindStringSubmatch(line); m != nil {
			number, _ := strconv.Atoi(m[2])
			all = append(all, InvalidLine{m[1], number, m[3]})
		} else if file, text, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(file, "/") {
			all = append(all, InvalidLine{File: file, Text: text})
		}
	}
	return all
}
