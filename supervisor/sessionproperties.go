package supervisor

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor/session"
)

// Unknown is the value of a number that is not known, as in systemd.
const Unknown = proc.Unknown

// Snapshot is a session as clients see it. It is not changed after it was created. Times are of the
// wall clock, zero if there is none. A field with a tag is a property of the session on the bus:
// `property:"NAME"`, with ",on-demand" if it is sent only to clients that read it.
type Snapshot struct {
	ID               string            `property:"Id"`
	Agent            string            `property:"Agent"`
	Command          []string          `property:"Command"`
	WorkingDirectory string            `property:"WorkingDirectory"`
	Created          time.Time         `property:"Timestamp"`
	Worktree         string            `property:"Worktree"`   // branch of its git worktree, "" if it has none
	Repository       string            `property:"Repository"` // directory of the worktree's repository, likewise
	Sandbox          string            `property:"Sandbox"`
	SandboxTool      string            `property:"SandboxTool"`
	SandboxNetwork   string            `property:"SandboxNetwork"`
	ForkedFrom       string            `property:"ForkedFrom"` // id of a session, "" if there is none
	Ports            []uint16          `property:"Ports"`      // TCP ports that are reserved for it
	Parent           string            `property:"Parent"`     // likewise
	Description      string            `property:"Description"`
	Labels           map[string]string `property:"Labels"`
	OnLogin          string            `property:"OnLogin"`
	State            string            `property:"State"`
	Lifecycle        string            `property:"Lifecycle"`
	Activity         string            `property:"Activity"`
	Attention        string            `property:"Attention"`
	AttentionMessage string            `property:"AttentionMessage"`
	AttentionSource  string            `property:"AttentionSource"`
	AttentionSince   time.Time         `property:"AttentionTimestamp"`
	AttentionUntil   time.Time         `property:"AttentionUntil"`    // when the limit resets that is its Attention
	ContinueAt       time.Time         `property:"ContinueTimestamp"` // when it is continued after a usage limit
	Queued           time.Time         `property:"QueuedTimestamp"`   // when it was queued; orders the queue
	// AttentionAcknowledged: a person has seen why it needs attention.
	AttentionAcknowledged bool      `property:"AttentionAcknowledged"`
	Notification          string    `property:"Notification"`
	StatusText            string    `property:"StatusText"`
	ConversationID        string    `property:"ConversationId"`
	Result                string    `property:"Result"`
	Reason                string    `property:"Reason"`
	EndCause              string    `property:"EndCause"`
	ExecMainCode          int32     `property:"ExecMainCode"`
	ExecMainStatus        int32     `property:"ExecMainStatus"`
	Started               time.Time `property:"ExecMainStartTimestamp"`
	Exited                time.Time `property:"ExecMainExitTimestamp"`
	StateChanged          time.Time `property:"StateChangeTimestamp"`
	// ChangedMonotonic is CLOCK_MONOTONIC when corrald noticed the change of State; 0 if that was on
	// an earlier boot.
	ChangedMonotonic time.Duration `property:"StateChangeTimestampMonotonic"`
	SessionAlive     bool          `property:"SessionAlive"`
	AgentAlive       bool          `property:"AgentAlive"`
	Attached         bool          `property:"Attached"` // a client is attached to its terminal
	Frozen           bool          `property:"Frozen"`
	Resumable        bool          `property:"Resumable"`
	Resumed          bool          `property:"Resumed"` // its last run has continued the conversation
	Idle             bool          `property:"IdleHint"`
	IdleSince        time.Time     `property:"IdleSinceHint"`
	Unit             string        `property:"Unit"`
	MainPID          uint32        `property:"MainPID"`
	NRuns            uint32        `property:"NRuns"`
	Expires          time.Time     `property:"ExpireTimestamp"`
	ControlGroup     string        `property:"ControlGroup"` // below the root of the hierarchy, "" if there is none

	Runs           []session.RunSummary `property:"Runs,on-demand"`           // those in the record, the newest last
	UnitProperties []session.Property   `property:"UnitProperties,on-demand"` // those that were set for it
	// CPUTime (nanoseconds) is of the agent of the last run and of the children that it waited for.
	// MaxRSS (bytes) is the memory of the largest of these processes. Both are Unknown while the agent
	// runs.
	CPUTime uint64 `property:"ExecMainCPUUsageNSec,on-demand"`
	MaxRSS  uint64 `property:"ExecMainMaxRSS,on-demand"`

	LastActivity time.Time     // last output before the agent fell silent, or the first one after that
	Ran          time.Duration // total duration of all runs that have ended
	SuspendsAt   time.Duration // CLOCK_MONOTONIC when it is suspended for being idle, 0 if never
	Live         bool          // its scope exists
	// Interrupted: it is suspended, neither on request nor for being idle. The machine, the login
	// session or the daemon ended.
	Interrupted bool
	// ByRequest: its result is the consequence of a client's request, and that client knows it.
	ByRequest bool
}

// Measurements are the properties of a session that change all the time. They are read when a
// client asks for them, and tagged as in Snapshot.
type Measurements struct {
	Memory     uint64        `property:"MemoryCurrent"` // bytes; Unknown, like the other counters, without a control group
	MemoryPeak uint64        `property:"MemoryPeak"`
	CPUTime    uint64        `property:"CPUUsageNSec"` // nanoseconds
	Tasks      uint64        `property:"TasksCurrent"` // processes and threads
	Runtime    time.Duration `property:"TotalRuntimeUSec"`
	LastOutput time.Time     `property:"LastActivityTimestamp"` // zero if unknown
	LastInput  time.Time     `property:"LastInputTimestamp"`    // likewise
	// QueuePosition is its position in the queue, 1 for the first one, 0 if it is not queued. It is
	// set by who knows the other sessions.
	QueuePosition uint32 `property:"QueuePosition"`
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
	err = s.loop.doWith(id, func(e *entry) error {
		if snap = e.published; snap == nil { // it was created in this iteration
			return NoSession(id)
		}
		return nil
	})
	return snap, err
}

// ByUnit returns the id of the session to which a scope belongs. Errors: NoSessionForUnit.
func (s *Supervisor) ByUnit(unit string) (id string, err error) {
	err = s.loop.try(func() error {
		e := s.loop.sessions.byUnit[unit]
		if e == nil {
			return refuse(NoSessionForUnit, "no session has unit %s", brief(unit))
		}
		id = e.rec.ID
		return nil
	})
	return id, err
}

// Measure reads the measurements of a session. It does not use the event loop.
func (s *Supervisor) Measure(snap *Snapshot) Measurements {
	m := Measurements{
		Memory: Unknown, MemoryPeak: Unknown, CPUTime: Unknown, Tasks: Unknown,
		Runtime: snap.TotalRuntime(time.Now()), LastOutput: s.loop.lastOutput(snap.ID),
		LastInput: proc.LastInput(int(snap.MainPID)),
	}
	if !snap.Live {
		return m
	}
	if u, exists := s.loop.system.ControlGroups.Usage(snap.ControlGroup); exists {
		m.Memory, m.MemoryPeak, m.CPUTime, m.Tasks = u.Memory, u.MemoryPeak, u.CPUTime, u.Tasks
	}
	return m
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
		Sandbox:          rec.Sandbox,
		Parent:           rec.Parent,
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
		Unit:             scopeName(rec),
		Expires:          e.loop.expiry.clock.Expiry(rec, v.State, e.loop.settings.config.Retention),
		Runs:             rec.RunSummaries(),
		UnitProperties:   rec.UnitProperties,
		CPUTime:          Unknown,
		MaxRSS:           Unknown,
		Attached:         e.run.reports.attached,
		Interrupted:      v.State == session.Suspended && rec.EndCause() == word.Shutdown,
		ByRequest:        e.client.knowsEnd(rec.Run, v.Result),
	}
	if rec.Fork != nil {
		snap.ForkedFrom = rec.Fork.From
	}
	if rec.IsQueued() {
		snap.Queued = rec.Queued.At
	}
	if rec.Worktree != nil {
		snap.Worktree, snap.Repository = rec.Worktree.Branch, rec.Worktree.Directory()
	}
	snap.Ports = rec.Ports.All()
	snap.Ran = rec.Forgotten
	for _, run := range snap.Runs {
		snap.Ran += run.Duration()
	}
	if rec.ChangedOn.ID == e.loop.settings.bootID {
		snap.ChangedMonotonic = rec.ChangedMonotonic
	}
	e.addActivity(snap)
	if e.notification.Since.Equal(snap.notificationSince()) {
		snap.Notification = e.notification.Value
	}
	if r := rec.Run; r != nil {
		snap.Started = r.Started
		snap.Resumed = r.Resumed
		snap.SandboxTool, snap.SandboxNetwork = r.SandboxTool, r.SandboxNetwork
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
		if r.Exit != nil {
			snap.addExit(*r.Exit)
		}
	}
	return snap
}

func (n *Snapshot) addExit(x exitstatus.Status) {
	n.ExecMainCode, n.ExecMainStatus, n.Exited = int32(x.Code), int32(x.Value), x.Exited
	if cpu := x.UserTime + x.SystemTime; cpu > 0 {
		n.CPUTime = uint64(cpu.Nanoseconds())
	}
	if x.MaxRSS > 0 {
		n.MaxRSS = uint64(x.MaxRSS)
	}
}

// addActivity adds the activity of the agent, and why it needs a person's attention, to the
// snapshot.
func (e *entry) addActivity(snap *Snapshot) {
	activity, source, since := e.rec.Activity()
	snap.Activity, snap.AttentionSource, snap.StatusText = activity, source.Public(), e.rec.StatusText()
	if activity == word.Idle || activity == word.Waiting {
		snap.Idle, snap.IdleSince = true, since
	}
	snap.LastActivity = e.rec.LastOutput()
	snap.SuspendsAt = e.loop.expiry.suspendsAt(e)
	snap.ContinueAt = e.continuation.at()
	if a := e.rec.Attention(); a.Reason != "" {
		snap.Attention, snap.AttentionMessage, snap.AttentionSource = a.Reason, a.Message, a.Source.Public()
		snap.AttentionSince, snap.AttentionUntil, snap.AttentionAcknowledged = a.Since, a.Until, a.Acknowledged
	}
}

// knowsEnd reports whether the run ended by a signal that a client has requested, or could not be
// started and a client has received that error.
func (c *client) knowsEnd(r *session.Run, result string) bool {
	switch result {
	case word.Signal, word.CoreDump:
		return c.run == r.ID && r.Exit != nil && r.Exit.Value == c.signal
	case word.StartFailed:
		return c.run == r.ID
	}
	return false
}
