package top

import "time"

// An effect is something that the model wants to have done outside of it. It comes back as the message that is named beside it.
type effect interface{ effect() }

type (
	// listen waits for news, for the first time or after some.
	listen struct{} // news

	// wait asks for the next second.
	wait struct{} // second

	// measure reads the counters of these sessions.
	measure struct{ of []target } // measured

	// inspect asks for what signals do not tell of a session.
	inspect struct {
		id     string
		detail uint64
	} // inspected

	// pause waits before the screen of a session is read.
	pause struct {
		id    string
		until time.Duration
	} // due

	// capture reads the last lines of a session's screen.
	capture struct {
		id    string
		lines int
	} // captured

	// call has the daemon do something.
	call struct {
		verb   verb
		id     string
		text   string // to send
		flags  uint64 // of the input
		whom   string // to signal
		signal int32
		force  bool
	} // called

	// attach gives the terminal to a session, after what has to be done to it first, "" for nothing.
	attach struct {
		id    string
		first verb // start, resume or thaw
	} // attached

	// doubt finds out why a terminal was left with an error: where its session is gone, it has ended under who had joined it.
	doubt struct {
		id  string
		err error
	} // attached

	// suspend gives the terminal back to the shell for a while, quit for good.
	suspendSelf struct{}
	quit        struct{}
)

func (listen) effect()      {}
func (wait) effect()        {}
func (measure) effect()     {}
func (inspect) effect()     {}
func (pause) effect()       {}
func (capture) effect()     {}
func (call) effect()        {}
func (attach) effect()      {}
func (doubt) effect()       {}
func (suspendSelf) effect() {}
func (quit) effect()        {}

// verb is one of the things that the daemon can do with a session, as corralctl calls it.
type verb string

const (
	start    verb = "start"
	stop     verb = "stop"
	resume   verb = "resume"
	suspend  verb = "suspend"
	freeze   verb = "freeze"
	thaw     verb = "thaw"
	archive  verb = "archive"
	remove   verb = "remove"
	kill     verb = "kill"
	send     verb = "send to"
	ack      verb = "acknowledge"
	attachTo verb = "attach to"
)

// doing is what is shown while it goes on; done, once it is.
func (v verb) doing() string {
	return map[verb]string{
		start: "Starting", stop: "Stopping", resume: "Resuming", suspend: "Suspending", freeze: "Freezing", thaw: "Thawing", archive: "Archiving",
		remove: "Removing", kill: "Signalling", send: "Sending to", ack: "Acknowledging", attachTo: "Attaching to",
	}[v]
}

func (v verb) done() string {
	return map[verb]string{
		start: "Started", stop: "Stopped", resume: "Resumed", suspend: "Suspended", freeze: "Froze", thaw: "Thawed", archive: "Archived", remove: "Removed",
		kill: "Signalled", send: "Sent to", ack: "Acknowledged", attachTo: "Back from",
	}[v]
}

// target is a session whose counters are to be read.
type target struct {
	id    string
	group string // its control group, "" if only the daemon knows
	ended bool   // what is in the group is left over
}

// The messages that effects bring, beside news and bubbletea's own.
type (
	second struct{ now time.Time }

	measured struct {
		at     time.Time
		values []values
	}

	// values are the counters of a session. Without a group there are none: it has ended.
	values struct {
		id                     string
		there                  bool
		memory, cpuTime, tasks uint64 // bytes, nanoseconds, tasks
		left                   int    // processes left over
	}

	inspected struct {
		id      string
		detail  uint64
		group   string
		message string
		err     error
	}

	due struct{ id string }

	captured struct {
		id   string
		text string
		err  error
	}

	called struct {
		call call
		err  error
	}

	attached struct {
		id   string
		err  error
		sure bool // the error is why it could not be attached to
	}
)
