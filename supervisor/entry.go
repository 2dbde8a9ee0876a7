package supervisor

import (
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor/session"
)

// entry is a session with everything that the event loop, which alone uses it, needs to supervise
// it.
type entry struct {
	rec       *session.Session
	published *Snapshot // the snapshot that clients have, nil if they have none
	dirty     bool
	unsaved   bool
	// onlyExitUnsaved is set if all that is unsaved follows from exit_status, which is a record too.
	onlyExitUnsaved bool
	removed         bool
	adoptedState    session.State // in the record of an earlier daemon, "" if no earlier daemon saved the session

	queue      []func()     // effects to be carried out, in this order
	busy       bool         // one of them is being carried out
	held       []queueEntry // effects that were decided in this iteration: enqueued once it is saved and published
	waiting    []waiter
	uncompared bool // the session was busy when it was to be compared with systemd's scopes

	run      runtime
	pending  session.Pending // the operation that is not finished
	timer    deadline.Stopper
	timerFor time.Duration // the deadline that timer is for, 0 if it does not run
	claim    claim         // of a run that waits to begin
	removal  removal       // of a pending OpRemove

	detectingPrinted bool // the conversation that the session's last agent has printed is being detected

	// knownRun is the id of a run whose end is known to a client: it has signaled the agent, or its
	// call has returned that the agent could not be started.
	knownRun     string
	clientSignal int  // the signal that the client has sent to that agent
	unattended   bool // the session is being started because of a login, not for a client

	saveErr  error // why the last attempt to save the session failed, nil if it succeeded
	watchErr error // why the files of the run are not watched
	// exitInRuntimeDir is set if the exit was recorded in the runtime directory, and has to be copied
	// to the state directory.
	exitInRuntimeDir bool

	nextLog map[string]time.Duration // when each cause may be logged again, by CLOCK_MONOTONIC: see canLog

	removeNotBefore time.Time // after a failed removal of an expired session: the next attempt is not before this time
}

// waiter is a call that is answered with err once ready returns true.
type waiter struct {
	ready func(*entry) bool
	reply chan error
	err   func(*entry) error
}
