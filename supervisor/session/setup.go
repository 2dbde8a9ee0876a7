package session

// SetupPhase is how far the setup of a session's worktree has come. It precedes the first run.
type SetupPhase string

// The phases of a setup. A session without one has none.
const (
	SetupPending SetupPhase = "pending" // it was never begun
	SetupRunning SetupPhase = "running"
	SetupFailed  SetupPhase = "failed" // another start begins it again
	SetupDone    SetupPhase = "done"
	SetupSkipped SetupPhase = "skipped" // the client did not want it
)

// Setup is the setup of a session's worktree. The zero value is for a session without one.
type Setup struct {
	Phase  SetupPhase `json:"phase"`
	Reason string     `json:"reason,omitempty"`  // why it has failed
	BootID string     `json:"boot_id,omitempty"` // of the boot on which it was last begun
}

// IsRequired reports whether the worktree has to be set up before the first run begins. An older
// daemon may have begun a run without that.
func (s Setup) IsRequired(w *Worktree, run *Run) bool {
	return run == nil && w != nil && (s.Phase == SetupPending || s.Phase == SetupRunning || s.Phase == SetupFailed)
}

// reason returns what the setup means for a session that never ran, for a person.
func (s Setup) reason() string {
	if s.Phase == SetupRunning {
		return "its worktree is being set up"
	}
	return s.Reason
}

// SetupBegun reports that the setup of the worktree begins.
type SetupBegun struct{ BootID string }

// SetupEnded reports that the setup is over. Reason is why it has failed, "" if it has not.
type SetupEnded struct{ Reason string }

// apply also takes the session out of the queue: a setup that fails is not begun again by itself.
func (e SetupBegun) apply(s *Session) {
	s.Setup, s.Queued = Setup{Phase: SetupRunning, BootID: e.BootID}, QueuedRun{}
}

func (e SetupEnded) apply(s *Session) {
	s.Setup.Phase, s.Setup.Reason = SetupDone, e.Reason
	if e.Reason != "" {
		s.Setup.Phase = SetupFailed
	}
}

// setUp begins the setup of the worktree, for the operation that begins the first run after it.
func (n *next) setUp() {
	n.record(SetupBegun{BootID: n.Pending.Begin.Run.BootID})
	n.enter(SetUp, 0)
	n.do(SetUpWorktree{})
}

func (q SetupReturned) decide(n *next) {
	p := &n.Pending
	switch {
	case p.Phase != SetUp:
		return
	case q.Err == "":
		n.record(SetupEnded{})
	case n.env.Closing && p.Op.begins(): // the next daemon begins it again
		p.Op = NoOp
	default:
		n.record(SetupEnded{Reason: q.Err})
		if p.Op.begins() {
			p.Op = NoOp
		}
	}
	n.gone()
}
