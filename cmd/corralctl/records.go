package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// savedList returns the sessions whose records are on disk, after err has shown that corrald is not
// available. The list contains err, to be reported after it.
func (c *ctl) savedList(doing string, err error) (sessionList, error) {
	if !client.IsUnavailable(err) || c.isRemote() {
		return sessionList{}, err
	}
	unknown := wording.UnknownState
	if c.isUnanswered(err) {
		unknown = wording.UnansweredState
	}
	sessions, readErr := savedSessions(unknown)
	if readErr != nil || len(sessions) == 0 {
		return sessionList{}, err
	}
	f := c.cannot(doing, "", err)
	f.code = exitUnreachable
	f.message = c.unreachableReason(err) + ": this is what was saved"
	inOrder := slices.SortedFunc(slices.Values(sessions),
		func(a, b client.Session) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return sessionList{sessions: sessions, leftovers: c.leftovers, parents: parentsOf(inOrder), unreachable: f}, nil
}

// savedSessions reads the records of the sessions from disk. Unknown is the state of those that
// were live.
func savedSessions(unknown string) ([]client.Session, error) {
	records, err := store.Read(stateDirectory())
	if err != nil {
		return nil, err
	}
	sessions := make([]client.Session, 0, len(records))
	for _, record := range records {
		applyRecordedExit(record)
		sessions = append(sessions, savedSession(record, unknown))
	}
	slices.SortFunc(sessions, func(a, b client.Session) int { return strings.Compare(a.Id, b.Id) })
	client.NumberQueue(sessions)
	return sessions, nil
}

// applyRecordedExit applies the exit that a shim has recorded and that corrald had not saved yet,
// or that happened after corrald had exited.
func applyRecordedExit(record *session.Session) {
	if record.Run == nil || record.Run.Ended() {
		return
	}
	status, err := exitstatus.Read(filepath.Join(stateDirectory(), "sessions", record.ID))
	if err == nil && status.RunID == record.Run.ID {
		record.Apply(session.AgentExited{Status: status})
	}
}

// savedSession converts a record. The state of a live session is unknown, and so are the counters
// of its control group.
func savedSession(record *session.Session, unknown string) client.Session {
	s := dbusapi.NewSession()
	s.Id, s.Agent, s.Command, s.Description = record.ID, record.Agent, record.Command, record.Description
	s.WorkingDirectory, s.Labels, s.OnLogin = record.WorkingDirectory, record.Labels, record.OnLogin
	s.Timestamp, s.NRuns, s.Activity = microseconds(record.Created), record.NRuns, word.Unknown
	s.ConversationId, s.Resumable = record.ConversationID, record.Resumable()
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	if record.IsQueued() {
		s.QueuedTimestamp = microseconds(record.Queued.At)
	}
	if record.Worktree != nil {
		s.Worktree, s.Repository = record.Worktree.Branch, record.Worktree.Directory()
	}
	s.Sandbox, s.Parent = record.Sandbox, record.Parent
	if record.Fork != nil {
		s.ForkedFrom = record.Fork.From
	}
	s.Ports = record.Ports.All()
	if record.Run != nil {
		s.SandboxTool, s.SandboxNetwork = record.Run.SandboxTool, record.Run.SandboxNetwork
		s.Unit, s.ExecMainStartTimestamp, s.Resumed = record.Run.Unit, microseconds(record.Run.Started), record.Run.Resumed
	}
	total := record.Forgotten
	for _, r := range record.RunSummaries() {
		s.Runs = append(s.Runs, savedRun(r))
		total += r.Duration()
	}
	s.TotalRuntimeUSec = uint64(total.Microseconds())
	if record.Run != nil && !record.Run.Ended() && record.Archived.IsZero() {
		s.State = unknown
		return s
	}
	view := record.View()
	s.State, s.Lifecycle, s.Result, s.Reason = string(view.State), view.State.Lifecycle(), view.Result, view.Reason
	s.EndCause, s.StateChangeTimestamp = record.EndCause(), microseconds(view.Since)
	if record.Run != nil && record.Run.Exit != nil {
		x := record.Run.Exit
		s.ExecMainCode, s.ExecMainStatus, s.ExecMainExitTimestamp = int32(x.Code), int32(x.Value), microseconds(x.Exited)
	}
	return s
}

// microseconds converts a time for the bus, 0 for none.
func microseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

func savedRun(r session.RunSummary) dbusapi.RunRow {
	return dbusapi.RunRow{
		ID: r.ID, Start: microseconds(r.Began), End: microseconds(r.Ended), Result: r.Result, Code: int32(r.Code),
		Status: int32(r.Status), Reason: r.Reason,
	}
}

// stateDirectory returns corrald's state directory as far as it can be determined without corrald.
func stateDirectory() string {
	return filepath.Join(baseDirectory(os.Getenv("XDG_STATE_HOME"), filepath.Join(os.Getenv("HOME"), ".local/state")),
		"corral")
}

// savedStatus prints the records of the sessions that words match, or how many there are without
// words.
func (c *ctl) savedStatus(words []string, err error) error {
	why := "corrald is not running"
	if c.isUnanswered(err) {
		why = "corrald does not answer"
	}
	list, err := c.savedList("show the status", err)
	if err != nil {
		return c.cannot("show the status", "", err)
	}
	if len(words) == 0 && !c.all {
		if c.wantsJSON() {
			return list.unreachable // nothing is known about corrald itself
		}
		fmt.Fprintf(c.out, "%s %s\n", c.paint(wording.Dim, "○"), why)
		c.field("Sessions", "%d saved in %s", len(list.sessions), stateDirectory())
		return list.unreachable
	}
	ids, _ := c.matchAll(words, rowsOf(list.sessions), isAny)
	err = c.printStatuses(ids, func(id string) (sessionStatus, error) {
		i := slices.IndexFunc(list.sessions, func(s client.Session) bool { return s.Id == id })
		return sessionStatus{session: list.sessions[i]}, nil
	})
	if err != nil {
		return err
	}
	return list.unreachable
}

func rowsOf(sessions []client.Session) []dbusapi.SessionRow {
	rows := make([]dbusapi.SessionRow, len(sessions))
	for i, s := range sessions {
		rows[i] = dbusapi.SessionRow{ID: s.Id, Agent: s.Agent, State: s.State}
	}
	return rows
}
