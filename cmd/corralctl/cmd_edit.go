package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/internal/safefile"
)

// discardMarker begins the part below a drop-in while it is edited. That part is below so that the
// drop-in's lines have the numbers that they will have in the file.
const discardMarker = "### Edits below this comment will be discarded"

const whitespace = " \t\r\n"

var editVerb = verb{
	name: "edit", args: "AGENT", summary: "Change an agent's definition, in a drop-in file",
	options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		if len(args) != 1 {
			return usagef("edit", "edit: expected one AGENT")
		}
		if c.isRemote() {
			return c.execHost(c.onlyHost(), "edit", args[0])
		}
		e, err := newEdit(args[0], c.full)
		if err != nil {
			return prefixed(fmt.Sprintf("cannot edit %q: ", args[0]), err)
		}
		text, changed, err := c.editAndSave(ctx, e)
		if err != nil {
			return prefixed(fmt.Sprintf("cannot edit %q: ", args[0]), err)
		}
		return c.reportEdit(ctx, e, text, changed)
	}),
}

// editAndSave lets the user edit, and saves the changes. If they cannot be saved it keeps the
// draft, and the error names it.
func (c *ctl) editAndSave(ctx context.Context, e *edit) (text []byte, changed bool, err error) {
	dir, err := os.MkdirTemp("", "corralctl-edit-")
	if err != nil {
		return nil, false, err
	}
	draft := filepath.Join(dir, e.agent+filepath.Ext(e.path))
	text, changed, err = c.editUntilValid(ctx, e, draft)
	if err == nil && changed {
		if err = e.save(text); err != nil {
			return nil, false, fmt.Errorf("%w; your changes are kept in %s", err, draft)
		}
	}
	return text, changed, errors.Join(err, os.RemoveAll(dir))
}

// edit is one file that is being edited.
type edit struct {
	agent  string
	path   string
	dropIn bool
	text   []byte // the initial text in the editor
	quoted []byte // shown below the text, to be discarded
	exists bool
}

// newEdit determines which file to edit, and reads it. Errors: *failure, whose message the caller
// has to prefix with what it cannot do.
func newEdit(agent string, full bool) (*edit, error) {
	own := config.UserDir()
	if own == "" {
		return nil, errors.New("HOME is not set")
	}
	if !config.ValidAgentName(agent) && !config.IsTemplate(agent) {
		return nil, fmt.Errorf("invalid agent name %q: expected lower-case letters, digits, \".\", \"_\" and \"-\", "+
			"with one \"@\" in the name of a template or of an account", agent)
	}
	files, err := config.AgentFiles(configDirs(), agent)
	if err != nil {
		return nil, err
	}
	e := &edit{agent: agent, path: config.AgentFile(own, agent)}
	if !full {
		if len(files) == 0 && agent != config.CommandAgent {
			return nil, &failure{exitFailed, "no such agent", "corralctl edit --full " + agent}
		}
		e.dropIn, e.path = true, filepath.Join(e.path+".d", "override.conf")
	}
	if e.text, err = safefile.ReadLinked(e.path, maxDefinition); err == nil {
		e.exists = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if e.dropIn {
		return e, e.quote(files)
	}
	if e.exists {
		return e, nil
	}
	if len(files) > 0 && filepath.Ext(files[0]) == ".agent" && !config.IsMasked(files[0]) {
		e.text, err = safefile.ReadLinked(files[0], maxDefinition)
		return e, err
	}
	e.text = fmt.Appendf(nil, definitionTemplate, agent)
	return e, nil
}

// definitionTemplate is the initial text of an agent's first definition.
const definitionTemplate = `[Agent]
Description=%s
Command=
# Further keys, each with an example; see corral.agent(5) for all of them.
#ResumeCommand=program --resume
#IdleAfterSec=30
#IdleSuspendSec=30min
#Notify=failed waiting
#NotifyUrgency=failed:critical waiting:normal
#ApproveKeys=y Enter
#DenyKeys=Escape

[Environment]
#Set=NAME=VALUE

[Scope]
#MemoryMax=4G
`

// quote sets e.quoted to the agent's other files, as comments.
func (e *edit) quote(files []string) error {
	if len(e.text) == 0 {
		e.text = []byte("\n")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n%s; those above are saved to %s\n", discardMarker, e.path)
	for _, file := range files {
		if file == e.path {
			continue
		}
		text, err := safefile.ReadLinked(file, maxDefinition)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n### %s\n", file)
		for line := range strings.Lines(string(text)) {
			fmt.Fprintf(&b, "# %s", line)
		}
	}
	e.quoted = b.Bytes()
	return nil
}

// editUntilValid lets the user edit the file draft until the text is valid, or the user saves it
// despite its mistakes.
func (c *ctl) editUntilValid(ctx context.Context, e *edit, draft string) (text []byte, changed bool, err error) {
	if err := atomicfile.Write(draft, append(bytes.Clone(e.text), e.quoted...), 0o600); err != nil {
		return nil, false, err
	}
	for {
		if err := c.runEditor(ctx, draft); err != nil {
			return nil, false, err
		}
		raw, err := safefile.ReadLinked(draft, maxDefinition)
		if err != nil {
			return nil, false, err
		}
		text = e.editedPart(raw)
		if bytes.Equal(text, bytes.TrimRight(e.text, whitespace)) || len(text) == 0 && !e.exists {
			return nil, false, nil
		}
		text = append(text, '\n')
		mistakes := e.check(text)
		if len(mistakes) == 0 {
			return text, true, nil
		}
		again, err := c.askToEditAgain(mistakes)
		if err != nil || !again {
			return text, err == nil, err
		}
	}
}

// editedPart returns what is above discardMarker. It trims only the end, so that lines keep their
// numbers.
func (e *edit) editedPart(raw []byte) []byte {
	if i := bytes.Index(raw, []byte(discardMarker)); e.dropIn && i >= 0 {
		raw = raw[:i]
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	return bytes.TrimRight(raw, whitespace)
}

// check returns the mistakes in a text, with file and line. An empty text has none: it removes the
// file.
func (e *edit) check(text []byte) []string {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	definition := config.AgentText{Name: e.agent, Path: e.path, DropIn: e.dropIn, Text: text, Dirs: configDirs()}
	agent, warnings := definition.Check()
	mistakes := make([]string, 0, len(warnings))
	for _, w := range warnings {
		mistakes = append(mistakes, w.String())
	}
	for _, property := range agent.Properties {
		if _, _, err := propertysyntax.Parse(property); err != nil {
			name, _, _ := strings.Cut(property, "=")
			warning := config.Warning{File: e.path, Line: lineOf(text, name), Text: err.Error()}
			mistakes = append(mistakes, warning.String())
		}
	}
	return mistakes
}

// lineOf returns the number of the first line that assigns to the key, 0 if there is none.
func lineOf(text []byte, key string) int {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if have, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(have) == key {
			return n
		}
	}
	return 0
}

// askToEditAgain prints the mistakes, and asks whether to edit again; if not, the text is to be
// saved as it is. Without a terminal it returns an error, and nothing is saved.
func (c *ctl) askToEditAgain(mistakes []string) (bool, error) {
	if openTerminal(c.in) == nil {
		return false, errors.New(strings.Join(mistakes, "; ") + "; nothing was changed")
	}
	for _, mistake := range mistakes {
		c.print("%s\n", mistake)
	}
	in := bufio.NewReader(c.in)
	for {
		fmt.Fprint(c.out, "\n[E]dit again, [s]ave it as it is, or [c]ancel? ")
		if err := c.out.Flush(); err != nil {
			return false, err
		}
		line, err := in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "e", "edit", "":
			if err == nil {
				return true, nil
			}
		case "s", "save":
			return false, nil
		case "c", "cancel":
			return false, errors.New("canceled, nothing was changed")
		}
		if errors.Is(err, io.EOF) {
			return false, errors.New("canceled, nothing was changed")
		}
		if err != nil {
			return false, err
		}
	}
}

// runEditor runs the user's editor on a file and waits for it. Ctrl-C and Ctrl-\ are left to the
// editor: if they ended corralctl, the editor would remain on a terminal that the shell reads, too.
func (c *ctl) runEditor(ctx context.Context, file string) error {
	words, err := c.editor()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, words[0], append(words[1:], file)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	keys := make(chan os.Signal, 1)
	signal.Notify(keys, unix.SIGINT, unix.SIGQUIT) // caught, not ignored: the editor would inherit that
	defer signal.Stop(keys)
	if err := command.Run(); err != nil {
		return fmt.Errorf("the editor %q failed, nothing was changed: %w", words[0], err)
	}
	return nil
}

// editor returns $VISUAL, $EDITOR, or an installed editor, which needs a terminal.
func (c *ctl) editor() ([]string, error) {
	if chosen := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR")); chosen != "" {
		words, err := config.SplitWords(chosen)
		if err != nil || len(words) == 0 {
			return nil, fmt.Errorf("invalid editor %q", chosen)
		}
		return words, nil
	}
	for _, name := range []string{"editor", "nano", "vim", "vi"} {
		path, err := exec.LookPath(name)
		switch {
		case err != nil:
		case !c.onTerminal():
			return nil, &failure{exitFailed, "standard input is not a terminal, and VISUAL and EDITOR are not set", ""}
		default:
			return []string{path}, nil
		}
	}
	return nil, &failure{exitFailed, "no editor was found: VISUAL and EDITOR are not set", ""}
}

// save writes the text to its file, or removes the file if the text is empty.
func (e *edit) save(text []byte) error {
	path := e.path
	if target, err := filepath.EvalSymlinks(path); err == nil && target != os.DevNull {
		path = target // the user's files may be links to where they are kept
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return config.Remove(e.path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o644)
}

// reportEdit prints what was done with the file, and makes a running daemon reload it.
func (c *ctl) reportEdit(ctx context.Context, e *edit, text []byte, changed bool) error {
	report := func(format string) {
		if !c.quiet {
			c.print(format, e.path)
		}
	}
	switch {
	case !changed && !e.exists:
		report("Nothing was written, %s is not created.\n")
		return nil
	case !changed:
		report("%s is unchanged.\n")
		return nil
	case len(bytes.TrimSpace(text)) == 0:
		report("Removed %s.\n")
	default:
		report("Wrote %s.\n")
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return nil //nolint:nilerr // without a bus there is no daemon, and the next one reads the file when it starts
	}
	if running, err := bus.Running(ctx); err != nil || !running {
		return err
	}
	if err := bus.Reload(ctx); err != nil {
		return c.cannot("reload", "", err)
	}
	return nil
}
