package ground

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// withConversation returns the plan of a run with the command that it is to execute: what goes on with the conversation, if there is one.
func (g *Ground) withConversation(ctx context.Context, p supervisor.Plan, tell func(session.Event)) (supervisor.Plan, error) {
	if p.Conversation == nil {
		return p, nil
	}
	saved, begun, err := g.saved(ctx, p, *p.Conversation)
	switch {
	case err != nil:
		return p, err
	case saved:
		p.Spec.Args = p.Conversation.Resume
	case begun && p.Conversation.Another != "":
		p.Spec.Args = p.Conversation.BeginAnother
		tell(session.NothingSaved{Run: p.Spec.RunID, ID: p.Conversation.Another})
	default:
		tell(session.NothingSaved{Run: p.Spec.RunID, ID: p.Conversation.Begins})
	}
	return p, nil
}

// saved tells whether the agent has saved a conversation, or has at least begun a file for it. Where it cannot be told, it has.
func (g *Ground) saved(ctx context.Context, p supervisor.Plan, c supervisor.Conversation) (saved, begun bool, err error) {
	if len(c.Condition) == 0 {
		return true, true, nil
	}
	variables, err := g.variables(ctx, p)
	if err != nil {
		return false, false, err
	}
	if own := homeOf(variables); own != "" {
		c.Values.Home = own
	}
	patterns, err := config.ExpandPatterns(c.Condition, c.Values, environment.Entries(variables))
	if err != nil {
		return false, false, err
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern) // a bad pattern was told when it was read
		if slices.ContainsFunc(files, func(file string) bool { return c.Content == nil || contains(file, c.Content) }) {
			return true, true, nil
		}
		begun = begun || len(files) > 0
	}
	return false, begun, nil
}

// homeOf returns the home that a session has of its own, "" where it has its user's.
func homeOf(variables []environment.Variable) string {
	i := slices.IndexFunc(variables, func(v environment.Variable) bool { return v.Name == "HOME" })
	if i < 0 || variables[i].Source == environment.Manager || !filepath.IsAbs(variables[i].Value) {
		return ""
	}
	return variables[i].Value
}

// maxContent is how much of a file is looked through, in bytes: what a conversation begins with.
const maxContent = 1 << 20

// contains tells whether a pattern matches in a file. One that cannot be read, or is no regular file, does not.
func contains(file string, pattern *regexp.Regexp) bool {
	f, err := safefile.OpenLinked(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxContent))
	return err == nil && pattern.Match(text)
}

// maxMade bounds what is read of what a command prints that makes an id, in bytes.
const maxMade = 64 << 10

// MakeConversation has a command make an id for a conversation, which it prints as the only word of its last line.
func (g *Ground) MakeConversation(ctx context.Context, p supervisor.Plan, command []string) (string, error) {
	doing := fmt.Sprintf("cannot create a conversation with %q", strings.Join(command, " "))
	if err := workspaceThere(p.Spec.Dir); err != nil {
		return "", err
	}
	env, err := g.environment(ctx, p)
	if err != nil {
		return "", err
	}
	path, err := program.Find(command[0], env, p.Spec.Dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = p.Spec.Dir, env, &limitedWriter{to: &out, left: maxMade}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // it does not outlive the daemon
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // what it leaves behind may hold the pipe open
	runtime.LockOSThread()      // Pdeathsig goes by the thread
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("%s: it took too long", doing)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", fmt.Errorf("%s: %w; run it in the workspace to see its output", doing, err)
	}
	id, ok := lastID(out.String())
	if !ok {
		return "", fmt.Errorf("%s: the last line of its output is not an id", doing)
	}
	return id, nil
}

// lastID is the last line of what a program printed, and whether that is a conversation's id.
func lastID(printed string) (string, bool) {
	printed = strings.TrimRight(printed, " \t\r\n")
	id := strings.TrimSpace(printed[strings.LastIndexByte(printed, '\n')+1:])
	return id, config.ValidConversationID(id)
}

// limitedWriter takes everything, and keeps the first of it.
type limitedWriter struct {
	to   io.Writer
	left int
}

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.left -= n
	if _, err := w.to.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// openFile is one that a process holds open, by whose path a conversation's id is known.
type openFile struct {
	steps    int // from the agent's own process to the one that holds it
	path, id string
	written  time.Time
}

// OpenConversation returns the id that is found in the paths of files that are held open by the agent, or else by the process nearest to it. Of several, that of
// the one that was written last, if their content tells which are the agent's conversations with its user: it may keep one open that it has left, and has others
// with agents that help it. Else the one that is known, or the first by name: what an agent begins beside its conversation comes later.
func (g *Ground) OpenConversation(t supervisor.Target, file supervisor.OpenFile) string {
	found := conversationsOpen(t, file.Path)
	if len(found) > 1 && file.Content != nil {
		theirs := slices.DeleteFunc(slices.Clone(found), func(f openFile) bool { return !contains(f.path, file.Content) })
		if len(theirs) > 0 {
			return slices.MaxFunc(theirs, func(a, b openFile) int { return a.written.Compare(b.written) }).id
		}
	}
	for _, f := range found {
		if f.id == file.Known {
			return f.id
		}
	}
	if len(found) == 0 {
		return ""
	}
	return found[0].id
}

// conversationsOpen returns the files with such a path that are held open by the process nearest to the agent that has any, by name.
func conversationsOpen(t supervisor.Target, pattern *regexp.Regexp) []openFile {
	pids, err := proc.Processes(t.ControlGroup)
	if err != nil || t.ControlGroup == "" {
		return nil
	}
	parents := map[int]int{}
	for _, pid := range pids {
		if st, err := proc.Stat(pid); err == nil {
			parents[pid] = st.Parent
		}
	}
	var found []openFile
	for pid := range parents {
		steps := distance(parents, pid, t.Agent.PID)
		if steps < 0 || len(found) > 0 && steps > found[0].steps {
			continue
		}
		for _, path := range openFiles(pid) {
			if m := pattern.FindStringSubmatch(path); m != nil && config.ValidConversationID(m[1]) {
				f := openFile{steps: steps, path: path, id: m[1]}
				if info, err := os.Stat(path); err == nil {
					f.written = info.ModTime()
				}
				if len(found) > 0 && steps < found[0].steps {
					found = found[:0]
				}
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b openFile) int { return strings.Compare(a.path, b.path) })
	return found
}

// distance is how many generations lie between a process and one that it descends from, negative if it does not.
func distance(parents map[int]int, pid, ancestor int) int {
	for steps := range len(parents) + 1 {
		if pid == ancestor {
			return steps
		}
		parent, there := parents[pid]
		if !there {
			break
		}
		pid = parent
	}
	return -1
}

// openFiles returns the paths of what a process holds open, as far as it can be told.
func openFiles(pid int) []string {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	paths := make([]string, 0, len(entries))
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// lastWords is how much of what an agent has printed is looked through for the id of its conversation, in bytes: it is the last that it prints.
const lastWords = 16 << 10

// Hint returns the id that the pattern finds last in what a run's agent has printed at its end, if something was saved by it.
func (g *Ground) Hint(ctx context.Context, p supervisor.Plan, c supervisor.Conversation, pattern *regexp.Regexp) string {
	text, err := tail(p.Spec.StateDir, lastWords)
	if err != nil {
		return ""
	}
	found := pattern.FindAllStringSubmatch(plain(text), -1)
	if len(found) == 0 || !config.ValidConversationID(found[len(found)-1][1]) {
		return ""
	}
	c.Values.Conversation = found[len(found)-1][1]
	if saved, _, err := g.saved(ctx, p, c); err != nil || !saved {
		return ""
	}
	return c.Values.Conversation
}

// tail reads the last of a session's log, which may have begun a new file just before.
func tail(dir string, size int64) ([]byte, error) {
	var text []byte
	for _, name := range []string{"output.log", "output.log.1"} {
		f, err := safefile.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // of both the other may be there: the new one could not be made, or there is none yet
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil {
			_, err = f.Seek(max(0, info.Size()-(size-int64(len(text)))), io.SeekStart)
		}
		var more []byte
		if err == nil {
			more, err = io.ReadAll(io.LimitReader(f, size))
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if text = append(more, text...); int64(len(text)) >= size {
			break
		}
	}
	return text, nil
}

// plain returns the text of what a program wrote to its terminal, without the escape sequences of ECMA-48 and its other control characters but line feeds.
func plain(b []byte) string {
	const escape = 0x1b
	text := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == escape:
			i += sequence(b[i:]) - 1
		case c >= ' ' && c != 0x7f, c == '\n':
			text = append(text, c)
		}
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// sequence is the length of the escape sequence that b begins with.
func sequence(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[': // CSI: parameters and intermediates, then one that ends it
		for i := 2; i < len(b); i++ {
			if b[i] < 0x20 || b[i] > 0x3f {
				return i + 1
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_': // a string, ended by ST, or by BEL
		for i := 2; i < len(b); i++ {
			switch b[i] {
			case '\a':
				return i + 1
			case 0x1b:
				if i+1 < len(b) && b[i+1] == '\\' {
					return i + 2
				}
				return i // the string was broken off by another sequence
			}
		}
		return len(b)
	}
	for i := 1; i < len(b); i++ { // intermediates, then one that ends it
		if b[i] < 0x20 || b[i] > 0x2f {
			return i + 1
		}
	}
	return len(b)
}
