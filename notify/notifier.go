// Package notify notifies the user of sessions that need attention: by desktop notifications, by
// hooks, and in the terminals of other sessions.
//
// A Desk decides which notices are shown, and what is news; a Notifier has the notification server
// show them, and does what a person selects there. One goroutine owns both and never blocks:
// neither on the server, which may be absent, slow, or hang, nor on the disk. So nothing here
// delays the supervisor. A server is never started for a notice: one without a display would block
// every caller.
package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor"
)

// Sessions carries out the actions of notices: a supervisor.Supervisor.
type Sessions interface {
	Resume(ctx context.Context, id string) error
	Restart(ctx context.Context, id string) error
	Acknowledge(ctx context.Context, id string) error
	AcknowledgeState(ctx context.Context, id string) error
	Send(ctx context.Context, id, text string, how supervisor.Input) error
	AnswerPermission(ctx context.Context, id string, answer supervisor.Answer) error
}

// Options configures a Notifier. Its functions may be called from any goroutine.
type Options struct {
	Address      string // of the user's bus
	File         string // path of the state that is kept across restarts
	Settings     Settings
	Sessions     func() Sessions                                 // called for each action
	IsWatched    func(ctx context.Context, id string) bool       // whether somebody looks at the session's terminal at this moment
	OpenTerminal func(ctx context.Context, args ...string) error // opens a window in which corralctl runs with these arguments
	ShowMessage  func(ctx context.Context, id, text string)      // shows a text in the terminals that are attached to the session
	Hooks        Hooks
	Announce     func(on bool) // reports whether notifications are sent, initially and after each change; must not block
	LogError     func(error)   // logs an error that has no caller
}

// connectTimeout bounds how long connecting to the bus may take.
const connectTimeout = 20 * time.Second

// mailboxSize is the length of the queue to the goroutine: a publisher does not wait during a
// burst.
const mailboxSize = 1024

// closeTime bounds how long a server may take to answer the last call: a notice that it has not
// acknowledged by then is sent again by the next Notifier.
const closeTime = 500 * time.Millisecond

// Notifier notifies the user. It is a supervisor.Publisher.
type Notifier struct {
	Options
	mailbox chan func()
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}

	// What follows belongs to the goroutine.
	idle     chan struct{}     // to be closed once the server has answered, after which it is not called any more; nil until Close
	signals  chan *dbus.Signal // nil until we are connected, and once the bus is lost
	begun    bool              // every existing session has been published
	desk     *Desk
	override *bool // what was set over the bus, nil if the configuration applies
	screen   screen
	callers  map[string]*caller // by hook
	messaged map[string]bool    // by session: a text is on its way to its terminals
	rings    chan struct{}      // by timer
	timer    *deadline.Timer    // nil if no time is awaited

	dirty   bool         // the file has to be written
	saving  chan error   // the result of the write in progress, nil if there is none
	writing []chan error // callers that wait for it
	waiting []chan error // callers that wait for the next one
}

// saved is the content of the file.
type saved struct {
	Notifications *bool `json:"notifications,omitempty"` // as set over the bus
	Memory
	Owner   string            `json:"owner,omitempty"` // bus name of the server
	Entries map[string]*entry `json:"entries,omitempty"`
}

// New starts a Notifier, to be ended by Close.
func New(o Options) *Notifier {
	kept, err := load(o.File)
	if err != nil {
		o.LogError(err)
	}
	n := &Notifier{
		Options: o, mailbox: make(chan func(), mailboxSize), ended: make(chan struct{}),
		override: kept.Notifications, screen: newScreen(kept), rings: make(chan struct{}, 1), callers: map[string]*caller{}, messaged: map[string]bool{},
	}
	n.desk = NewDesk(o.Settings, n.on(), kept.Memory)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.Announce(n.on())
	go n.run()
	go n.connect()
	return n
}

// maxSaved bounds what is read of the file, in bytes: it has some hundred for each session with a
// notice.
const maxSaved = 64 << 20

func load(path string) (kept saved, err error) {
	content, err := safefile.Read(path, maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &kept)
	}
	if err != nil {
		return saved{}, fmt.Errorf("cannot read which notifications were sent, %q: %w", path, err)
	}
	return kept, nil
}

// Publish implements supervisor.Publisher. It ignores the answers, which are for the bus.
func (n *Notifier) Publish(changes []supervisor.Change, _ []func()) {
	if len(changes) == 0 {
		return
	}
	n.post(func() {
		for _, c := range changes {
			if c.New == nil {
				n.desk.Remove(c.Old.ID)
			} else {
				n.desk.Set(c.New)
			}
		}
	})
}

// PublishProblems implements supervisor.Publisher.
func (n *Notifier) PublishProblems([]supervisor.Problem) {}

// Begin reports that every existing session has been published. Until then no notice is shown or
// closed.
func (n *Notifier) Begin() {
	n.post(func() { n.begun, n.screen.hold = true, time.Now().Add(holdTime) })
}

// LoggedIn reports that the sessions that are restored at login have been.
func (n *Notifier) LoggedIn() {
	n.post(func() {
		n.desk.LoggedIn(time.Now())
		n.dirty = true
	})
}

// Configure replaces the configuration.
func (n *Notifier) Configure(s Settings) {
	n.post(func() {
		before := n.on()
		n.Settings = s
		n.desk.Configure(s)
		for _, c := range n.callers {
			n.clearHookFailure(c) // it may have been repaired
		}
		n.switched(before)
	})
}

// SetEnabled turns notifications on or off, and returns once that is saved. It overrides the
// configuration until both agree.
func (n *Notifier) SetEnabled(on bool) error {
	done := make(chan error, 1)
	n.post(func() {
		before := n.on()
		n.override = &on
		if on == n.Settings.Config.Notifications {
			n.override = nil
		}
		n.switched(before)
		n.dirty = true
		n.waiting = append(n.waiting, done)
	})
	select {
	case err := <-done:
		return err
	case <-n.ctx.Done():
		return supervisor.ErrClosed
	}
}

func (n *Notifier) on() bool {
	if n.override != nil {
		return *n.override
	}
	return n.Settings.Config.Notifications
}

func (n *Notifier) switched(before bool) {
	if on := n.on(); on != before {
		n.desk.Switch(on)
		n.Announce(on)
	}
}

// Close ends the Notifier, after its state is saved. Notices stay on the screen: the next Notifier
// adopts them.
func (n *Notifier) Close() error {
	idle := make(chan struct{})
	n.post(func() { n.idle = idle })
	limit, cancel := deadline.Context(context.Background(), closeTime)
	defer cancel()
	select {
	case <-idle:
	case <-limit.Done():
	}
	n.cancel()
	<-n.ended
	if n.saving != nil {
		n.saved(<-n.saving)
	}
	for _, w := range n.waiting {
		w <- supervisor.ErrClosed
	}
	if !n.begun {
		return nil
	}
	return n.write(n.kept())
}

// post has the goroutine call f. After Close it does nothing.
func (n *Notifier) post(f func()) {
	select {
	case n.mailbox <- f:
	case <-n.ctx.Done():
	}
}

func (n *Notifier) run() {
	defer close(n.ended)
	defer n.wake(time.Time{})
	for {
		select {
		case f := <-n.mailbox:
			f()
			n.drain()
		case signal, ok := <-n.signals:
			if !ok {
				n.signals = nil // the bus is lost, and the daemon ends soon
				continue
			}
			n.received(signal)
		case err := <-n.saving:
			n.saved(err)
		case <-n.rings:
		case <-n.ctx.Done():
			return
		}
		switch {
		case n.idle != nil && !n.screen.calling:
			close(n.idle)
			<-n.ctx.Done()
			return
		case n.begun && n.idle == nil:
			n.ask()
			now := time.Now()
			n.wake(now, n.step(now), n.sendNews(now))
			n.save()
		}
	}
}

// wake has the goroutine run at the earliest of these times, instead of those that were set before.
// Zero times are ignored.
func (n *Notifier) wake(now time.Time, times ...time.Time) {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return
	}
	n.timer = deadline.AfterFunc(slices.MinFunc(times, time.Time.Compare).Sub(now), func() {
		select {
		case n.rings <- struct{}{}:
		default: // it will run anyway
		}
	})
}

// drain empties the mailbox: a burst is handled once.
func (n *Notifier) drain() {
	for range mailboxSize {
		select {
		case f := <-n.mailbox:
			f()
		default:
			return
		}
	}
}

// connect connects to the bus and finds the server that is there.
func (n *Notifier) connect() {
	ctx, cancel := deadline.Context(n.ctx, connectTimeout)
	defer cancel()
	conn, err := bus.DialGuarded(ctx, n.Address, nil)
	if err != nil {
		n.cannotConnect(err)
		return
	}
	context.AfterFunc(n.ctx, func() { _ = conn.Close() })
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	var server *bus.Owner
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(serverName), dbus.WithMatchInterface(serverName), dbus.WithMatchObjectPath(serverPath))
	if err == nil {
		server, err = bus.WatchOwner(ctx, conn.Conn, serverName)
	}
	if err != nil {
		n.cannotConnect(fmt.Errorf("cannot watch the notification server: %w", err))
		return
	}
	n.post(func() {
		n.screen.conn, n.screen.server = conn.Conn, server
		n.owned(server.UniqueName())
		n.signals = signals // not before: they report the servers that came or left after Follow
	})
}

func (n *Notifier) cannotConnect(err error) {
	if n.ctx.Err() == nil {
		n.LogError(fmt.Errorf("cannot send desktop notifications: %w", err))
	}
}

// ask finds out whether a person is watching the sessions that the desk is unsure about.
func (n *Notifier) ask() {
	for id, token := range n.desk.Unsure() {
		if n.screen.asked[id] == token {
			continue
		}
		n.screen.asked[id] = token
		go func() {
			watched := n.IsWatched(n.ctx, id)
			n.post(func() {
				if n.screen.asked[id] == token {
					delete(n.screen.asked, id)
				}
				n.desk.Watched(id, token, watched)
			})
		}()
	}
}

// save writes the file if necessary, one write at a time.
func (n *Notifier) save() {
	if !n.dirty || n.saving != nil {
		return
	}
	n.dirty, n.saving = false, make(chan error, 1)
	n.writing, n.waiting = n.waiting, nil
	content, done := n.kept(), n.saving
	go func() { done <- n.write(content) }()
}

// saved handles the result of a write.
func (n *Notifier) saved(err error) {
	n.saving = nil
	for _, w := range n.writing {
		w <- err
	}
	if err != nil && len(n.writing) == 0 {
		n.LogError(err)
	}
	n.writing = nil
}

// kept returns what the file should contain.
func (n *Notifier) kept() []byte {
	content, err := json.Marshal(saved{Notifications: n.override, Memory: n.desk.Memory(), Owner: n.screen.owner, Entries: n.screen.entries})
	if err != nil {
		n.LogError(fmt.Errorf("cannot encode which notifications were sent: %w", err)) // cannot happen
	}
	return append(content, '\n')
}

func (n *Notifier) write(content []byte) error {
	if err := atomicfile.Write(n.File, content, 0o600); err != nil {
		return fmt.Errorf("cannot save which notifications were sent: %w", err)
	}
	return nil
}
