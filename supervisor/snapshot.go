package supervisor

import (
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// Snapshot is a session as clients see it. It is not changed after it was created. Times are of the
// wall clock, zero if there is none.
type Snapshot struct {
	ID               string
	Agent            string
	Command          []string
	WorkingDirectory string
	Created          time.Time
	Worktree         string // branch of its git worktree, "" if it has none
	Repository       string // directory of the worktree's repository, "" if it has none
	Description      string
	Labels           map[string]string
	OnLogin          string
	State            string
	Lifecycle        string
	Activity         string
	Attention        string
	AttentionMessage string
	AttentionSource  string
	StatusText       string
	ConversationID   string
	Result           string
	Reason           string
	EndCause         string
	ExecMainCode     int32
	ExecMainStatus   int32
	Started          time.Time
	Exited           time.Time
	StateChanged     time.Time
	ChangedMonotonic time.Duration // CLOCK_MONOTONIC when corrald noticed the change of State; 0 if on an earlier boot
	SessionAlive     bool
	AgentAlive       bool
	Frozen           bool
	Resumable        bool
	Resumed          bool // its last run has continued the conversation
	Idle             bool
	IdleSince        time.Time
	LastActivity     time.Time // last output before the agent fell silent, or the first one after that
	Unit             string
	MainPID          uint32
	NRuns            uint32
	Ran              time.Duration // total duration of all runs that have ended
	Expires          time.Time
	SuspendsAt       time.Duration // CLOCK_MONOTONIC when it is suspended for being idle, 0 if never

	AttentionSince        time.Time // when it began to need a person's attention
	AttentionAcknowledged bool      // a person has seen why

	Attached bool // a client is attached to its terminal
	// Interrupted: it is suspended, neither on request nor for being idle. The machine, the login
	// session or the daemon ended.
	Interrupted bool
	// ByRequest: its result is the consequence of a client's request, and that client knows it.
	ByRequest bool

	UnitProperties []session.Property // those that were set for it
	// CPUTime is of the agent of the last run and of the children that it waited for. It is zero while
	// the agent runs or if it is unknown.
	CPUTime time.Duration
	MaxRSS  uint64 // bytes: the memory of the largest of these processes, 0 likewise

	Runs         []session.RunSummary // the runs that are in the record, the newest last
	ControlGroup string               // below the root of the hierarchy, "" if there is none
	Live         bool                 // its scope exists
}

// TotalRuntime returns the total duration of all runs of the session, including a current one until
// now.
func (n *Snapshot) TotalRuntime(now time.Time) time.Duration {
	if n.AgentAlive && !n.Started.IsZero() && now.After(n.Started) {
		return n.Ran + now.Sub(n.Started)
	}
	return n.Ran
}

// Program returns the name of what the session runs, for a person: the agent, or the program of a
// plain command.
func (n *Snapshot) Program() string { return programName(n.Agent, n.Command) }

// Sessions returns a snapshot of every session, the oldest session first.
func (s *Supervisor) Sessions() (all []*Snapshot, err error) {
	err = s.loop.do(func() {
		all = make([]*Snapshot, 0, len(s.loop.sessions.byID))
		for _, e := range s.loop.sessions.sorted() {
			if e.published != nil {
				all = append(all, e.published)
			}
		}
	})
	return all, err
}

// Session returns a snapshot of one session. Errors: NoSuchSession.
func (s *Supervisor) Session(id string) (snap *Snapshot, err error) {
	if closed := s.loop.do(func() {
		var e *entry
		if e, err = s.loop.sessions.find(id); err == nil {
			snap = e.published
		}
	}); closed != nil {
		return nil, closed
	}
	if err == nil && snap == nil { // it was created in this iteration
		err = NoSession(id)
	}
	return snap, err
}

// ByUnit returns the id of the session to which a scope belongs. Errors: NoSessionForUnit.
func (s *Supervisor) ByUnit(unit string) (id string, err error) {
	err = s.loop.do(func() {
		if e := s.loop.sessions.byUnit[unit]; e != nil {
			id = e.rec.ID
		}
	})
	if err == nil && id == "" {
		err = refuse(NoSessionForUnit, "no session has unit %s", brief(unit))
	}
	return id, err
}

// Usage returns the resources that the session's scope uses. It returns false if there is no scope.
// It does not use the event loop.
func (s *Supervisor) Usage(snap *Snapshot) (u proc.Usage, exists bool) {
	if !snap.Live {
		return u, false
	}
	return s.loop.system.ControlGroups.Usage(snap.ControlGroup)
}

// takeSnapshot returns the session as clients are to see it.
func (e *entry) takeSnapshot() *Snapshot {
	rec := e.rec
	v := rec.View()
	snap := &Snapshot{
		ID:               rec.ID,
		Agent:            rec.Agent,
		Command:          rec.Command,
		WorkingDirectory: rec.WorkingDirectory,
		Created:          rec.Created,
		Description:      rec.Description,
		Labels:           rec.Labels,
		OnLogin:          rec.OnLogin,
		State:            string(v.State),
		Lifecycle:        v.State.Lifecycle(),
		ConversationID:   rec.ConversationID,
		Result:           v.Result,
		Reason:           v.Reason,
		EndCause:         rec.EndCause(),
		StateChanged:     rec.StateChanged,
		Resumable:        rec.Resumable(),
		NRuns:            rec.NRuns,
		Unit:             unitname.Scope(rec.Agent, rec.ID),
		Expires:          e.loop.expiry.clock.Expiry(rec, v.State, e.loop.settings.config.Retention),
		Runs:             rec.RunSummaries(),
		UnitProperties:   rec.UnitProperties,
		Attached:         e.run.reports.attached,
		Interrupted:      v.State == session.Suspended && rec.EndCause() == word.Shutdown,
		ByRequest:        e.client.knowsEnd(rec.Run, v.Result),
	}
	if rec.Worktree != nil {
		snap.Worktree, snap.Repository = rec.Worktree.Branch, strings.TrimSuffix(rec.Worktree.Repository, "/.git")
	}
	snap.Ran = rec.Forgotten
	for _, run := range snap.Runs {
		snap.Ran += run.Duration()
	}
	if rec.ChangedOn.ID == e.loop.settings.bootID {
		snap.ChangedMonotonic = rec.ChangedMonotonic
	}
	e.addActivity(snap)
	if r := rec.Run; r != nil {
		snap.Started = r.Started
		snap.Resumed = r.Resumed
		snap.SessionAlive = r.Tmux == session.Alive && r.Live()
		snap.AgentAlive = r.AgentAlive()
		snap.Frozen = rec.Frozen && r.Live()
		snap.Live = r.Scope == session.ScopeActive
		if snap.Live || !r.Ended() {
			snap.ControlGroup = r.ControlGroup
		}
		if snap.AgentAlive {
			snap.MainPID = uint32(r.Agent.PID)
		}
		if x := r.Exit; x != nil {
			snap.ExecMainCode, snap.ExecMainStatus, snap.Exited = int32(x.Code), int32(x.Value), x.Exited
			snap.CPUTime, snap.MaxRSS = x.UserTime+x.SystemTime, uint64(max(x.MaxRSS, 0))
		}
	}
	return snap
}

// addActivity adds the activity of the agent, and why it needs a person's attention, to the
// snapshot.
func (e *entry) addActivity(snap *Snapshot) {
	activity, source, since := e.rec.Activity()
	snap.Activity, snap.AttentionSource, snap.StatusText = activity, source.Public(), e.rec.StatusText()
	if activity == session.Idle || activity == session.Waiting {
		snap.Idle, snap.IdleSince = true, since
	}
	snap.LastActivity = e.rec.LastOutput()
	snap.SuspendsAt = e.loop.expiry.suspendsAt(e)
	if a := e.rec.Attention(); a.Reason != "" {
		snap.Attention, snap.AttentionMessage, snap.AttentionSource = a.Reason, a.Message, a.Source.Public()
		snap.AttentionSince, snap.AttentionAcknowledged = a.Since, a.Acknowledged
	}
}

// knowsEnd reports whether the run ended by a signal that a client has requested, or could not be
// started and a client has received that error.
func (c *client) knowsEnd(r *session.Run, result string) bool {
	switch result {
	case session.Signal, session.CoreDump:
		return c.run == r.ID && r.Exit != nil && r.Exit.Value == c.signal
	case session.CannotStart:
		return c.run == r.ID
	}
	return false
}
