package top

import "time"

// An effect is something that the model wants to have done outside of it. It comes back as the
// message that is named beside it.
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

	// call asks the daemon to do something.
	call struct {
		verb   verb
		id     string
		text   string            // to send, or the value to set
		flags  uint64            // of the input
		whom   string            // to signal
		signal int32             //
		force  bool              //
		labels map[string]string // to set
		spec   NewSession        // to create
	} // called

	// strokes sends keys to a session, by tmux's names for them, or else a text as if it was pasted.
	strokes struct {
		id   string
		keys []string
		text string
	} // pressed

	// listAgents asks for the agents that a session can be created with.
	listAgents struct{} // agents

	// save stores the settings.
	save struct{ settings settings } // saved

	// attach gives the terminal to a session.
	attach struct{ id string } // attached

	// show gives the terminal to a pager with what corralctl prints about a session.
	show struct {
		verb verb // logs, why, status or diff
		id   string
	} // attached

	// doubt finds out why a terminal was left with an error: where its session is gone, it has ended
	// under who had joined it.
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
func (strokes) effect()     {}
func (listAgents) effect()  {}
func (save) effect()        {}
func (show) effect()        {}
func (attach) effect()      {}
func (doubt) effect()       {}
func (suspendSelf) effect() {}
func (quit) effect()        {}

// is reports whether it is the same call.
func (c call) is(other call) bool {
	return c.verb == other.verb && c.id == other.id && c.text == other.text
}

// verb is one of the things that can be done with a session. Its text is the verb of a message
// about it.
type verb string

const (
	start    verb = "start"
	stop     verb = "stop"
	resume   verb = "resume"
	restart  verb = "restart"
	suspend  verb = "suspend"
	freeze   verb = "freeze"
	thaw     verb = "thaw"
	archive  verb = "archive"
	remove   verb = "remove"
	kill     verb = "signal"
	reap     verb = "kill the leftover processes of"
	send     verb = "send to"
	approve  verb = "approve"
	deny     verb = "deny"
	ack      verb = "mark as seen"
	enable   verb = "enable"
	disable  verb = "disable"
	describe verb = "describe"
	label    verb = "label"
	create   verb = "create"

	attachTo verb = "attach to"
	pressIn  verb = "send keys to"
	logs     verb = "show the log of"
	why      verb = "explain"
	status   verb = "show the status of"
	diff     verb = "show the changes of"
)

// texts are the texts about a verb: while it is carried out, and once it is done, each followed by
// the session's id.
var texts = map[verb]struct{ doing, done string }{
	start: {"Starting", "Started"}, stop: {"Stopping", "Stopped"}, resume: {"Resuming", "Resumed"}, restart: {"Restarting", "Restarted"},
	suspend: {"Suspending", "Suspended"}, freeze: {"Freezing", "Froze"}, thaw: {"Thawing", "Thawed"}, archive: {"Archiving", "Archived"},
	remove: {"Removing", "Removed"}, kill: {"Signalling", "Sent the signal to"}, reap: {"Killing the leftover processes of", "Killed the leftover processes of"},
	send: {"Sending to", "Sent to"}, approve: {"Approving", "Approved the request of"}, deny: {"Denying", "Denied the request of"},
	ack: {"Marking as seen:", "Marked as seen:"}, enable: {"Enabling", "Enabled at login:"}, disable: {"Disabling", "Disabled at login:"},
	describe: {"Describing", "Described"}, label: {"Labelling", "Labelled"}, create: {"Creating", "Created"},
	attachTo: {"Attaching to", "Back from"}, logs: {"Reading the log of", ""}, why: {"Explaining", ""}, status: {"Reading the status of", ""},
	diff: {"Reading the changes of", ""},
}

func (v verb) doing() string { return texts[v].doing }
func (v verb) done() string  { return texts[v].done }

// answers reports whether the verb answers what an agent asks, so that its screen changes.
func (v verb) answers() bool { return v == send || v == approve || v == deny }

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
		id   string // of the session that was created
		err  error
	}

	pressed struct {
		id  string
		err error
	}

	agents struct {
		names []string
		err   error
	}

	saved struct{ err error }

	attached struct {
		verb verb // what gave the terminal away
		id   string
		err  error
		sure bool // the error says why it could not be attached to
	}
)
