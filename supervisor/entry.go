package supervisor

import (
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// entry is a session with everything that is done about it. It belongs to the loop.
type entry struct {
	rec     *session.Session
	shown   *Snapshot // what clients were told last
	dirty   bool
	unsaved bool
	exited  bool // all that is unsaved follows from exit_status, which is a record too
	removed bool
	adopted session.State // what it was when it was saved by an earlier daemon, "" if it was not

	queue   []func() // effects to be done, in order
	busy    bool     // one of them is being done
	missed  bool     // it was not looked at when systemd was listed
	held    []effect // decided in this turn: they begin once it was saved and published
	waiting []waiter

	run      runtime
	then     func()      // what to do once the scope is gone
	overrule func(error) // tells who has asked for that why it is not done
	starts   bool        // that is to begin a run
	wants    string      // the conversation which that is given, "" if it is not known
	goal     spot        // the directory in which that is to be
	hinting  bool        // it is being found out which conversation its last agent had

	leaving bool   // it is being removed
	taking  string // the directory that is removed with it, "" if none is

	known      string // id of the run whose agent a client had signalled, or was told could not be started
	signal     int    // that signal
	unattended bool   // it is being started because of a login, by nobody's call

	begun bool // a run begins in this turn
	into  bool // in the scope that is there

	saveErr  error // why it could not be saved the last time
	watchErr error // why the files of its run are not watched
	stray    bool  // its exit was found in the runtime directory, and has to be kept in the state directory

	logged map[string]time.Duration // when each cause may be logged again, by CLOCK_MONOTONIC: see mayLog

	removeAgain time.Time // it has expired and could not be removed: not before this time again
}

// waiter is a call that is answered when ready says so.
type waiter struct {
	ready func(*entry) bool
	reply chan error
	err   func(*entry) error
}
