package supervisor

import (
	"fmt"
	"strings"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// Snapshot is a session as clients see it. It is never changed once it was made. Times are wall clock, zero where there is none.
type Snapshot struct {
	ID               string
	Agent            string
	Command          []string
	WorkingDirectory string
	Created          time.Time
	Worktree         string // the branch of its git worktree, "" if it has none
	Repository       string // the directory of the repository that the worktree is of, "" if it has none
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
	ChangedMonotonic time.Duration // by CLOCK_MONOTONIC: when it was known that State had changed; 0 if on an earlier boot
	SessionAlive     bool
	AgentAlive       bool
	Frozen           bool
	Resumable        bool
	Resumed          bool // its last run has gone on with the conversation
	Idle             bool
	IdleSince        time.Time
	LastActivity     time.Time // the last output before it fell silent, or the first after that
	Unit             string
	MainPID          uint32
	NRuns            uint32
	Ran              time.Duration // how long all runs have lived that are over
	Expires          time.Time
	SuspendsAt       time.Duration // by CLOCK_MONOTONIC: when it will have been idle for too long, 0 if never

	AttentionSince        time.Time // when it began to want a person
	AttentionAcknowledged bool      // a person has seen what it wants

	Attached    bool // somebody is attached to its terminal
	Interrupted bool // it is suspended, and neither by wish nor for being idle: the machine, the login session or the daemon ended
	ByWish      bool // how it ended follows from what a client has asked for, who knows

	UnitProperties []session.Property // that were set for it
	CPUTime        time.Duration      // of the agent of the last run and the children that it waited for, zero while it lives or if that is not known
	MaxRSS         uint64             // bytes: the memory of the largest of these processes, 0 likewise

	Runs         []session.Account // those that are remembered, the newest last
	ControlGroup string            // below the root of the hierarchy, "" if there is none
	Live         bool              // its scope is there
}

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
		Expires:          s.expires(rec, v.State),
		Runs:             rec.Accounts(),
		UnitProperties:   rec.UnitProperties,
		Attached:         e.run.attached,
		Interrupted:      v.State == session.Suspended && v.Reason != "" && !rec.Run.IdledOut,
		ByWish:           s.byWish(e, v),
	}
	if rec.Worktree != nil {
		snap.Worktree, snap.Repository = rec.Worktree.Branch, strings.TrimSuffix(rec.Worktree.Repository, "/.git")
	}
	snap.Ran = rec.Forgotten
	for _, run := range snap.Runs {
		snap.Ran += run.Duration()
	}
	if rec.ChangedOn.ID == s.boot.ID {
		snap.ChangedMonotonic = rec.ChangedMonotonic
	}
	s.showActivity(e, snap)
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

// byWish tells whether the session ended by a signal that a client has had sent, or could not be started and a client has been told so.
func (s *Supervisor) byWish(e *entry, v session.View) bool {
	if v.Result == session.CannotStart && len(e.waiting) > 0 && !e.unattended {
		e.known = e.rec.Run.ID
	}
	r := e.rec.Run
	switch v.Result {
	case session.Signal, session.CoreDump:
		return e.known == r.ID && r.Exit != nil && r.Exit.Value == e.signal
	case session.CannotStart:
		return e.known == r.ID
	}
	return false
}

// showActivity puts into the snapshot what the session's agent does, and why it wants a person.
func (s *Supervisor) showActivity(e *entry, snap *Snapshot) {
	activity, source, since := e.rec.Active()
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

// Counts is how many sessions there are, archived ones left out.
type Counts struct {
	Sessions, Running, Waiting, TurnsEnded, Failed, Stale, Suspended uint32
}

// TotalRuntime is how long all runs of the session have lived until now.
func (n *Snapshot) TotalRuntime(now time.Time) time.Duration {
	if n.AgentAlive && !n.Started.IsZero() && now.After(n.Started) {
		return n.Ran + now.Sub(n.Started)
	}
	return n.Ran
}

// Program is what a person calls what the session runs: its agent, or the program of a plain command.
func (n *Snapshot) Program() string { return programName(n.Agent, n.Command) }

// CountOf counts the sessions that the snapshots are of.
func CountOf(all []*Snapshot) Counts {
	var c Counts
	for _, snap := range all {
		c = c.with(snap)
	}
	return c
}

// with returns the counts with one more session.
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

// String puts the counts as systemctl status shows them: "3 running, 1 failed".
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

// tellStatus tells the service manager the counts, if they have changed.
func (s *Supervisor) tellStatus() {
	if s.Status == nil {
		return
	}
	var c Counts
	for _, e := range s.sessions {
		if e.shown != nil {
			c = c.with(e.shown)
		}
	}
	text := c.String()
	if text != s.lastText {
		s.lastText = text
		s.Status(text)
	}
}

func (s *Supervisor) snapshots() []*Snapshot {
	all := make([]*Snapshot, 0, len(s.sessions))
	for _, e := range s.sorted() {
		if e.shown != nil {
			all = append(all, e.shown)
		}
	}
	return all
}

// Sessions returns every session, the oldest first.
func (s *Supervisor) Sessions() (all []*Snapshot, err error) {
	err = s.do(func() { all = s.snapshots() })
	return all, err
}

// Session returns one session. Errors: NoSuchSession.
func (s *Supervisor) Session(id string) (snap *Snapshot, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			snap = e.shown
		}
	}); e != nil {
		return nil, e
	}
	if err == nil && snap == nil {
		err = refuse(NoSuchSession, "no such session: %s", brief(id))
	}
	return snap, err
}
