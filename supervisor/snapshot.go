package supervisor

import (
	"fmt"
	"strings"
	"time"

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

// snapshot returns the session as clients are to see it.
func (s *Supervisor) snapshot(e *entry) *Snapshot {
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
		StateChanged:     rec.StateChanged,
		Resumable:        rec.Resumable(),
		NRuns:            rec.NRuns,
		Unit:             UnitName(rec.Agent, rec.ID),
		Expires:          s.expiry.clock.Expiry(rec, v.State, s.Config.Retention),
		Runs:             rec.RunSummaries(),
		UnitProperties:   rec.UnitProperties,
		Attached:         e.run.attached,
		Interrupted:      v.State == session.Suspended && v.Reason != "" && !rec.Run.IdledOut,
		ByRequest:        s.endedByRequest(e, v),
	}
	if rec.Worktree != nil {
		snap.Worktree, snap.Repository = rec.Worktree.Branch, strings.TrimSuffix(rec.Worktree.Repository, "/.git")
	}
	snap.Ran = rec.Forgotten
	for _, run := range snap.Runs {
		snap.Ran += run.Duration()
	}
	if rec.ChangedOn.ID == s.BootID {
		snap.ChangedMonotonic = rec.ChangedMonotonic
	}
	s.addActivity(e, snap)
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

// endedByRequest reports whether the session ended by a signal that a client has requested, or
// could not be started and a client has received that error.
func (s *Supervisor) endedByRequest(e *entry, v session.View) bool {
	if v.Result == session.CannotStart && len(e.waiting) > 0 && !e.unattended {
		e.knownRun = e.rec.Run.ID
	}
	r := e.rec.Run
	switch v.Result {
	case session.Signal, session.CoreDump:
		return e.knownRun == r.ID && r.Exit != nil && r.Exit.Value == e.clientSignal
	case session.CannotStart:
		return e.knownRun == r.ID
	}
	return false
}

// addActivity adds the activity of the agent, and why it needs a person's attention, to the
// snapshot.
func (s *Supervisor) addActivity(e *entry, snap *Snapshot) {
	activity, source, since := e.rec.Activity()
	snap.Activity, snap.AttentionSource, snap.StatusText = activity, source.Public(), e.rec.StatusText()
	if activity == session.Idle || activity == session.Waiting {
		snap.Idle, snap.IdleSince = true, since
	}
	snap.LastActivity = e.rec.LastOutput()
	snap.SuspendsAt = s.suspendsAt(e)
	if a := e.rec.Attention(); a.Reason != "" {
		snap.Attention, snap.AttentionMessage, snap.AttentionSource = a.Reason, a.Message, a.Source.Public()
		snap.AttentionSince, snap.AttentionAcknowledged = a.Since, a.Acknowledged
	}
}

// Counts is the number of sessions, in total and by state, without archived ones.
type Counts struct {
	Sessions, Running, Waiting, TurnsEnded, Failed, Stale, Suspended uint32
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

// CountOf counts the sessions of the snapshots.
func CountOf(all []*Snapshot) Counts {
	var c Counts
	for _, snap := range all {
		c = c.with(snap)
	}
	return c
}

// with returns the counts including one more session.
func (c Counts) with(snap *Snapshot) Counts {
	if snap.State == string(session.Archived) {
		return c
	}
	c.Sessions++
	switch session.State(snap.State) {
	case session.Running:
		c.Running++
	case session.Failed:
		c.Failed++
	case session.Stale:
		c.Stale++
	case session.Suspended:
		c.Suspended++
	}
	if snap.Activity == session.Waiting {
		c.Waiting++
	}
	if snap.Attention == session.TurnEnded {
		c.TurnsEnded++
	}
	return c
}

// String returns the counts as systemctl status shows them: "3 running, 1 failed".
func (c Counts) String() string {
	var parts []string
	add := func(n uint32, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(c.Running, "running")
	add(c.Waiting, "waiting")
	switch c.TurnsEnded {
	case 1:
		add(1, "turn ended")
	default:
		add(c.TurnsEnded, "turns ended")
	}
	add(c.Failed, "failed")
	add(c.Stale, "stale")
	add(c.Suspended, "suspended")
	if len(parts) == 0 {
		return "no sessions running"
	}
	return strings.Join(parts, ", ")
}

// reportStatus sends the counts to the service manager, if they have changed.
func (s *Supervisor) reportStatus() {
	if s.SetStatus == nil {
		return
	}
	var c Counts
	for _, e := range s.sessions {
		if e.published != nil {
			c = c.with(e.published)
		}
	}
	text := c.String()
	if text != s.lastStatus {
		s.lastStatus = text
		s.SetStatus(text)
	}
}

// snapshots returns the published snapshot of every session, the oldest session first.
func (s *Supervisor) snapshots() []*Snapshot {
	all := make([]*Snapshot, 0, len(s.sessions))
	for _, e := range s.sorted() {
		if e.published != nil {
			all = append(all, e.published)
		}
	}
	return all
}

// Sessions returns a snapshot of every session, the oldest session first.
func (s *Supervisor) Sessions() (all []*Snapshot, err error) {
	err = s.do(func() { all = s.snapshots() })
	return all, err
}

// Session returns a snapshot of one session. Errors: NoSuchSession.
func (s *Supervisor) Session(id string) (snap *Snapshot, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			snap = e.published
		}
	}); e != nil {
		return nil, e
	}
	if err == nil && snap == nil {
		err = refuse(NoSuchSession, "no such session: %s", brief(id))
	}
	return snap, err
}
