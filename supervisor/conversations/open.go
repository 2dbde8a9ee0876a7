package conversations

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/proc"
)

// Detector detects which conversation an agent has, by what the agent does: it implements
// supervisor.Conversations. Its methods read files of agents, block as long as a file system does
// not respond, and are not called on the event loop; several goroutines may call them at the same
// time.
type Detector struct{}

// OpenFile describes the file in which an agent keeps its conversation, to find it among the files
// that the agent holds open.
type OpenFile struct {
	Path *regexp.Regexp // matches in the path of the file; the first group is the id
	// Content matches in the beginning of the file; of several such files, the one that was written
	// last is used. It is nil if the content does not matter.
	Content *regexp.Regexp
	Known   string // the id that is preferred if the content does not decide
}

// conversationFile is a file that a process holds open and whose path contains a conversation id.
type conversationFile struct {
	generations int // from the agent to its descendant that holds the file open
	path, id    string
	written     time.Time
}

// DetectOpen returns the id in the path of a file that is held open by the agent, the process with
// this PID in this control group, or, if it holds no such file, by the nearest of its descendants
// that hold one; "" if there is none.
//
// An agent may hold several such files open: an earlier conversation, and those of its subagents.
// If their content shows which are conversations with the user, DetectOpen returns the one that was
// written last. Otherwise it returns the known one or, if that is not among them, the first by
// path: the files that an agent opens besides its conversation are created later.
func (Detector) DetectOpen(group string, agent int, file OpenFile) string {
	found := openConversationFiles(group, agent, file.Path)
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
func openConversationFiles(group string, agent int, pattern *regexp.Regexp) []conversationFile {
	pids, err := proc.Processes(group)
	if err != nil || group == "" {
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
		steps := distance(parents, pid, agent)
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

// distance returns the number of generations from a process up to its ancestor, -1 if the process
// is not a descendant.
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
