package top

import "time"

// effect is an operation that the model requests and the runner executes. Its result comes back as
// the message that is named in the comment of each effect.
type effect interface{ effect() }

type (
	// awaitChanges waits for changes of sessions. Message: changes.
	awaitChanges struct{}

	// awaitSecond waits for the next full second. Message: second.
	awaitSecond struct{}

	// measure reads the counters of these sessions. Message: measured.
	measure struct{ of []measureTarget }

	// inspect reads what signals do not carry about a session. Message: inspected.
	inspect struct {
		id     string
		detail uint64
	}

	// delayCapture waits before the screen of a session is read. Message: captureDue.
	delayCapture struct {
		id    string
		delay time.Duration
	}

	// capture reads the last lines of a session's screen. Message: captured.
	capture struct {
		id    string
		lines int
	}

	// call asks the daemon to do something with a session. Message: called.
	call struct {
		verb      verb
		id        string
		text      string // to send, or the value to set
		flags     uint64 // of the input
		recipient string // of a signal: agent or leftovers
		signal    int32
		force     bool
		labels    map[string]string // to set
		spec      NewSession        // to create
	}

	// sendKeys sends keys to a session by tmux's names for them, or a text as if it was pasted.
	// Message: keysSent.
	sendKeys struct {
		id   string
		keys []string
		text string
	}

	// listAgents lists the agents that a session can be created with. Message: agents.
	listAgents struct{ host string }

	// save stores the settings. Message: saved.
	save struct{ settings settings }

	// attach attaches the terminal to a session. Message: attached.
	attach struct{ id string }

	// show runs a pager on the terminal with what corralctl prints about a session. Message: attached.
	show struct {
		verb verb // logs, why, status or diff
		id   string
	}

	// suspendSelf suspends top as a job of the shell.
	suspendSelf struct{}

	// quit ends top.
	quit struct{}
)

func (awaitChanges) effect() {}
func (awaitSecond) effect()  {}
func (measure) effect()      {}
func (inspect) effect()      {}
func (delayCapture) effect() {}
func (capture) effect()      {}
func (call) effect()         {}
func (sendKeys) effect()     {}
func (listAgents) effect()   {}
func (save) effect()         {}
func (show) effect()         {}
func (attach) effect()       {}
func (suspendSelf) effect()  {}
func (quit) effect()         {}

// verb is an operation on a session. Its text is the verb in messages about it.
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

	attachTo   verb = "attach to"
	passKeysTo verb = "send keys to"
	logs       verb = "show the log of"
	why        verb = "explain"
	status     verb = "show the status of"
	diff       verb = "show the changes of"
)

// verbTexts are the texts for the message line: while the operation runs, and once it is done. The
// id of the session follows.
var verbTexts = map[verb]struct{ doing, done string }{
	start:    {"Starting", "Started"},
	stop:     {"Stopping", "Stopped"},
	resume:   {"Resuming", "Resumed"},
	restart:  {"Restarting", "Restarted"},
	suspend:  {"Suspending", "Suspended"},
	freeze:   {"Freezing", "Froze"},
	thaw:     {"Thawing", "Thawed"},
	archive:  {"Archiving", "Archived"},
	remove:   {"Removing", "Removed"},
	kill:     {"Signalling", "Sent the signal to"},
	reap:     {"Killing the leftover processes of", "Killed the leftover processes of"},
	send:     {"Sending to", "Sent to"},
	approve:  {"Approving", "Approved the request of"},
	deny:     {"Denying", "Denied the request of"},
	ack:      {"Marking as seen:", "Marked as seen:"},
	enable:   {"Enabling", "Enabled at login:"},
	disable:  {"Disabling", "Disabled at login:"},
	describe: {"Describing", "Described"},
	label:    {"Labelling", "Labelled"},
	create:   {"Creating", "Created"},
	attachTo: {"Attaching to", "Back from"},
	logs:     {"Reading the log of", ""},
	why:      {"Explaining", ""},
	status:   {"Reading the status of", ""},
	diff:     {"Reading the changes of", ""},
}

// answers reports whether the operation answers an agent, so that its screen changes.
func (v verb) answers() bool { return v == send || v == approve || v == deny }

// measureTarget is a session whose counters are to be read.
type measureTarget struct {
	id    string
	group string // its control group, "" if only the daemon knows
	ended bool   // the session has ended: processes other than shim and tmux are leftovers
}

// The messages that are results of effects. A further one is changes.
type (
	second struct{ now time.Time }

	measured struct {
		at       time.Time
		counters []counters
	}

	// counters are the resource usage of a session. They do not exist once its control group is gone.
	counters struct {
		id                     string
		exists                 bool
		memory, cpuTime, tasks uint64 // bytes, nanoseconds, tasks
		leftovers              int    // leftover processes
	}

	inspected struct {
		id      string
		detail  uint64
		group   string
		message string
		err     error
	}

	captureDue struct{ id string }

	captured struct {
		id   string
		text string
		err  error
	}

	called struct {
		call call
		id   string // of the session, also of a newly created one
		err  error
	}

	keysSent struct {
		id  string
		err error
	}

	agents struct {
		names []string
		err   error
	}

	saved struct{ err error }

	attached struct {
		verb verb // the operation that has used the terminal
		id   string
		err  error
	}
)
