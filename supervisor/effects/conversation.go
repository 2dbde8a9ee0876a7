package effects

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

// withConversation returns the plan with the command that the run executes: if the plan has a
// conversation that the agent has saved, the command that continues it.
func (x *Executor) withConversation(
	ctx context.Context, p supervisor.Plan, report func(session.Event),
) (supervisor.Plan, error) {
	if p.Conversation == nil {
		return p, nil
	}
	saved, begun, err := x.checkSaved(ctx, p, *p.Conversation)
	switch {
	case err != nil:
		return p, err
	case saved:
		p.Spec.Args = p.Conversation.Resume
	case begun && p.Conversation.OtherID != "":
		p.Spec.Args = p.Conversation.OtherCommand
		report(session.ConversationNotFound{Run: p.Spec.RunID, ID: p.Conversation.OtherID})
	default:
		report(session.ConversationNotFound{Run: p.Spec.RunID, ID: p.Conversation.FreshID})
	}
	return p, nil
}

// checkSaved reports whether the agent has saved a conversation, or has at least begun a file for
// it. Both are true if the agent's definition has no condition for that.
func (x *Executor) checkSaved(
	ctx context.Context, p supervisor.Plan, c supervisor.Conversation,
) (saved, begun bool, err error) {
	if len(c.Condition) == 0 {
		return true, true, nil
	}
	variables, err := x.variables(ctx, p)
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
		files, _ := filepath.Glob(pattern) // invalid patterns are reported when the definition is read
		for _, file := range files {
			if c.Content == nil || fileMatches(file, c.Content) {
				return true, true, nil
			}
		}
		begun = begun || len(files) > 0
	}
	return false, begun, nil
}

// homeOf returns the home directory that was set for the session, "" if it has the user's.
func homeOf(variables []environment.Variable) string {
	i := slices.IndexFunc(variables, func(v environment.Variable) bool { return v.Name == "HOME" })
	if i < 0 || variables[i].Source == environment.Manager || !filepath.IsAbs(variables[i].Value) {
		return ""
	}
	return variables[i].Value
}

// maxContent bounds how much of a file is searched, from its beginning, in bytes.
const maxContent = 1 << 20

// fileMatches reports whether a pattern matches in the beginning of a file. It is false if the file
// cannot be read or is not a regular file.
func fileMatches(file string, pattern *regexp.Regexp) bool {
	f, err := safefile.OpenLinked(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxContent))
	return err == nil && pattern.Match(text)
}

// maxIDOutput bounds how much is read of the output of IdCommand=, in bytes.
const maxIDOutput = 64 << 10

// createConversation runs IdCommand=, which creates a conversation and prints its id as the only
// word of the last line, and reports that id.
func (x *Executor) createConversation(
	ctx context.Context, p supervisor.Plan, report func(session.Event),
) error {
	command := p.IDCommand
	doing := fmt.Sprintf("cannot create a conversation with %q", strings.Join(command, " "))
	if err := checkWorkspace(p.Spec.Dir); err != nil {
		return err
	}
	env, err := x.environment(ctx, p)
	if err != nil {
		return err
	}
	path, err := program.Find(command[0], env, p.Spec.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = p.Spec.Dir, env, &limitedWriter{to: &out, left: maxIDOutput}
	// The kernel kills the command if the daemon exits.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // leftover processes of the command may hold the pipe open
	runtime.LockOSThread()      // the kernel sends Pdeathsig when the thread exits that has started the command
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: it took too long", doing)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s: %w; run it in the workspace to see its output", doing, err)
	}
	id, ok := lastID(out.String())
	if !ok {
		return fmt.Errorf("%s: the last line of its output is not an id", doing)
	}
	report(session.ConversationCreated{Run: p.Spec.RunID, ID: id})
	return nil
}

// lastID returns the last line of a program's output, and whether it is a valid conversation id.
func lastID(printed string) (string, bool) {
	printed = strings.TrimRight(printed, " \t\r\n")
	id := strings.TrimSpace(printed[strings.LastIndexByte(printed, '\n')+1:])
	return id, config.ValidConversationID(id)
}

// limitedWriter writes the first left bytes to another writer and discards the rest.
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

// conversationFile is a file that a process holds open and whose path contains a conversation id.
type conversationFile struct {
	generations int // from the agent to its descendant that holds the file open
	path, id    string
	written     time.Time
}

// DetectOpen implements supervisor.Conversations. It returns the id in the path of a file that is
// held open by the agent or, if it holds no such file, by the nearest of its descendants that hold
// one.
//
// An agent may hold several such files open: an earlier conversation, and those of agents that help
// it. If their content shows which are conversations with the user, DetectOpen returns the one that
// was written last. Otherwise it returns the known one or, if that is not among them, the first by
// path: the files that an agent opens besides its conversation are created later.
func (x *Executor) DetectOpen(t supervisor.Target, file supervisor.OpenFile) string {
	found := openConversationFiles(t, file.Path)
	if len(found) > 1 && file.Content != nil {
		users := slices.DeleteFunc(slices.Clone(found), func(f conversationFile) bool {
			return !fileMatches(f.path, file.Content)
		})
		if len(users) > 0 {
			return slices.MaxFunc(users, func(a, b conversationFile) int { return a.written.Compare(b.written) }).id
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

// openConversationFiles returns the files whose path matches the pattern and that are held open by
// the agent or, if it holds no such file, by the nearest of its descendants that hold one. They are
// sorted by path.
func openConversationFiles(t supervisor.Target, pattern *regexp.Regexp) []conversationFile {
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
	var found []conversationFile
	for pid := range parents {
		steps := distance(parents, pid, t.Agent.PID)
		if steps < 0 || len(found) > 0 && steps > found[0].generations {
			continue
		}
		for _, path := range openFiles(pid) {
			if m := pattern.FindStringSubmatch(path); m != nil && config.ValidConversationID(m[1]) {
				f := conversationFile{generations: steps, path: path, id: m[1]}
				if info, err := os.Stat(path); err == nil {
					f.written = info.ModTime()
				}
				if len(found) > 0 && steps < found[0].generations {
					found = found[:0]
				}
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b conversationFile) int { return strings.Compare(a.path, b.path) })
	return found
}

// distance returns the number of generations from a process up to its ancestor, negative if it does
// not descend from that.
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

// openFiles returns the paths of the files that a process holds open, none if they cannot be read.
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

// maxPrinted bounds how much of an agent's output is searched for the id of its conversation, which
// the agent prints at its end, in bytes.
const maxPrinted = 16 << 10

// DetectPrinted implements supervisor.Conversations. It returns the last match of the pattern in
// the end of the output, if the agent has saved a conversation with that id.
func (x *Executor) DetectPrinted(
	ctx context.Context, p supervisor.Plan, c supervisor.Conversation, pattern *regexp.Regexp,
) string {
	text, err := tail(p.Spec.StateDir, maxPrinted)
	if err != nil {
		return ""
	}
	found := pattern.FindAllStringSubmatch(plain(text), -1)
	if len(found) == 0 || !config.ValidConversationID(found[len(found)-1][1]) {
		return ""
	}
	c.Values.Conversation = found[len(found)-1][1]
	if saved, _, err := x.checkSaved(ctx, p, c); err != nil || !saved {
		return ""
	}
	return c.Values.Conversation
}

// tail reads the last size bytes of a session's log, which may have been rotated just before.
func tail(dir string, size int64) ([]byte, error) {
	var text []byte
	for _, name := range []string{"output.log", "output.log.1"} {
		f, err := safefile.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // the new file could not be created, or the log was never rotated
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

// plain returns the text that a program has written to its terminal, without the escape sequences
// of ECMA-48 and without control characters except line feeds.
func plain(b []byte) string {
	const escape = 0x1b
	text := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == escape:
			i += escapeLength(b[i:]) - 1
		case c >= ' ' && c != 0x7f, c == '\n':
			text = append(text, c)
		}
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// escapeLength returns the length of the escape sequence that b begins with.
func escapeLength(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[': // CSI: parameter and intermediate bytes, then a final byte
		for i := 2; i < len(b); i++ {
			if b[i] < 0x20 || b[i] > 0x3f {
				return i + 1
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_': // a control string, terminated by ST or BEL
		for i := 2; i < len(b); i++ {
			switch b[i] {
			case '\a':
				return i + 1
			case 0x1b:
				if i+1 < len(b) && b[i+1] == '\\' {
					return i + 2
				}
				return i // another sequence interrupts the string
			}
		}
		return len(b)
	}
	for i := 1; i < len(b); i++ { // intermediate bytes, then a final byte
		if b[i] < 0x20 || b[i] > 0x2f {
			return i + 1
		}
	}
	return len(b)
}
