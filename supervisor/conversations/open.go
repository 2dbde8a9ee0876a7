package conversations

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/resettime"
	"github.com/corrald/corral/internal/safefile"
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
	// Limit matches the end of the file if a usage limit has ended the last turn: see
	// config.Agent.LimitRecord. It is nil if that does not matter.
	Limit *regexp.Regexp
}

// Opened is what DetectOpen finds. The zero value means that the agent holds none open.
type Opened struct {
	ID    string
	Limit *UsageLimit // that has ended the last turn, nil if none did
}

// UsageLimit is a usage limit as an agent has recorded it.
type UsageLimit struct {
	Message string
	Until   time.Time // when it resets, zero if that is unknown
}

// conversationFile is a file that a process holds open and whose path contains a conversation id.
type conversationFile struct {
	generations int // from the agent to its descendant that holds the file open
	path, id    string
	written     time.Time
}

// DetectOpen returns the id in the path of a file that is held open by the agent, the process with
// this PID in this control group, or, if it holds no such file, by the nearest of its descendants
// that hold one; and the usage limit that this file ends with.
//
// An agent may hold several such files open: an earlier conversation, and those of its subagents.
// If their content shows which are conversations with the user, DetectOpen returns the one that was
// written last. Otherwise it returns the known one or, if that is not among them, the first by
// path: the files that an agent opens besides its conversation are created later.
func (Detector) DetectOpen(group string, agent int, file OpenFile) Opened {
	found := chooseOpenFile(group, agent, file)
	return Opened{found.id, readLimit(found.path, file.Limit)}
}

func chooseOpenFile(group string, agent int, file OpenFile) conversationFile {
	found := openConversationFiles(group, agent, file.Path)
	if len(found) > 1 && file.Content != nil {
		users := slices.DeleteFunc(slices.Clone(found), func(f conversationFile) bool {
			return !fileMatches(f.path, file.Content)
		})
		if len(users) > 0 {
			return slices.MaxFunc(users, func(a, b conversationFile) int { return a.written.Compare(b.written) })
		}
	}
	for _, f := range found {
		if f.id == file.Known {
			return f
		}
	}
	if len(found) == 0 {
		return conversationFile{}
	}
	return found[0]
}

// maxLimitRecord is how much of the end of a file is searched for a usage limit, in bytes.
const maxLimitRecord = 64 << 10

// readLimit returns the usage limit with which a file ends, nil if there is none or the file cannot
// be read.
func readLimit(path string, pattern *regexp.Regexp) *UsageLimit {
	if path == "" || pattern == nil {
		return nil
	}
	f, err := safefile.OpenLinked(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > maxLimitRecord {
		_, _ = f.Seek(-maxLimitRecord, io.SeekEnd)
	}
	end, err := io.ReadAll(io.LimitReader(f, maxLimitRecord))
	match := pattern.FindSubmatch(end)
	if err != nil || match == nil {
		return nil
	}
	var l UsageLimit
	text := match[pattern.SubexpIndex("message")]
	if json.Unmarshal([]byte(`"`+string(text)+`"`), &l.Message) != nil {
		l.Message = string(text)
	}
	if group := pattern.SubexpIndex("until"); group >= 0 {
		if seconds, err := strconv.ParseInt(string(match[group]), 10, 64); err == nil {
			l.Until = time.Unix(seconds, 0)
		}
	}
	if l.Until.IsZero() {
		l.Until, _ = resettime.Parse(l.Message, time.Now(), time.Local)
	}
	return &l
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
