// Package notify notifies the user of sessions that need attention: by desktop notifications, by
// hooks, and by messages in the terminals of other sessions.
//
// A Policy decides which notices and events there are. A Notifier has the notification server show
// the notices and carries out the actions that a person selects in them. One goroutine owns both.
// It never blocks, neither on the server, which may be absent, slow or hanging, nor on the disk, so
// the supervisor is never delayed. A notice never starts a notification server: one without a
// display would block every caller.
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
)

// Options configures a Notifier. Its functions may be called from any goroutine.
type Options struct {
	Address  string // of the user's bus
	File     string // path of the state that is kept across restarts
	Settings Settings
	Sessions func() Sessions // called for each action
	// IsWatched reports whether a person is looking at the session's terminal at this moment.
	IsWatched func(ctx context.Context, id string) bool
	// OpenTerminal opens a terminal window in which corralctl runs with these arguments.
	OpenTerminal func(ctx context.Context, args ...string) error
	// ShowMessage shows a text in the terminals that are attached to the session.
	ShowMessage func(ctx context.Context, id, text string)
	Hooks       Hooks
	// Announce publishes whether notices are shown. It is called at the start and after each change,
	// and must not block.
	Announce func(enabled bool)
	LogError func(error) // logs an error that cannot be returned to a caller
	// Publish publishes these notifications of sessions of this machine; the zero value removes one.
	Publish func(map[string]Notification)
	// Confirm reports to the corrald of another machine that a notice about this session was shown. If
	// that fails, it is called again after the next Begin.
	Confirm func(ctx context.Context, id string, since time.Time)
}

// connectTimeout bounds how long connecting to the bus may take.
const connectTimeout = 20 * time.Second

// mailboxSize is the length of the queue to the goroutine. It is large enough for a publisher not
// to wait during a burst.
const mailboxSize = 1024

// closeTimeout bounds how long Close waits for the server's reply to the last call. A notice whose
// reply does not arrive by then is sent again by the next Notifier, even if the server has shown
// it.
const closeTimeout = 500 * time.Millisecond

// Notifier notifies the user.
type Notifier struct {
	Options
	mailbox chan func()
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	// The fields below belong to the goroutine.

	// Close sets idle. It is closed once no call to the server is pending; no further call is made.
	idle       chan struct{}
	signals    chan *dbus.Signal // nil until the bus is connected, and once it is lost
	ready      bool              // every existing session has been published
	begun      bool              // ready was set before
	policy     *Policy
	override   *bool // Notifications as set over the bus, nil if the configuration applies
	screen     screen
	hookQueues map[string]*hookQueue // by name of the hook
	messaging  map[string]bool       // sessions in whose terminals a message is being shown
	timer      *deadline.Timer       // nil if there is nothing to wait for
	publishing bool                  // Publish is being called
	beginning  chan<- struct{}       // see Begin; nil if nobody waits
	confirmed  map[string]time.Time  // by session: the since of the last call of Confirm

	dirty   bool         // the file has to be written
	saving  chan error   // the result of the write in progress, nil if there is none
	writing []chan error // callers that wait for the write in progress
	waiting []chan error // callers that wait for the next write
}

// savedState is the content of the file.
type savedState struct {
	Notifications *bool `json:"notifications,omitempty"` // as set over the bus
	PolicyState
	Owner   string            `json:"owner,omitempty"` // unique bus name of the server
	Entries map[string]*entry `json:"entries,omitempty"`
}

// New starts a Notifier. The caller has to Close it.
func New(o Options) *Notifier {
	state, err := loadState(o.File)
	if err != nil {
		o.LogError(err)
	}
	n := &Notifier{
		Options: o, mailbox: make(chan func(), mailboxSize), done: make(chan struct{}),
		override: state.Notifications, screen: newScreen(state),
		hookQueues: map[string]*hookQueue{}, messaging: map[string]bool{}, confirmed: map[string]time.Time{},
	}
	n.policy = NewPolicy(o.Settings, n.isEnabled(), state.PolicyState)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.Announce(n.isEnabled())
	go n.run()
	go n.connect()
	return n
}

// maxStateSize bounds the size of the file, in bytes. A session with a notice takes some hundred.
const maxStateSize = 64 << 20

func loadState(path string) (state savedState, err error) {
	content, err := safefile.Read(path, maxStateSize)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &state)
	}
	if err != nil {
		return savedState{}, fmt.Errorf("cannot read which notifications were sent, %q: %w", path, err)
	}
	return state, nil
}

// Update adds, changes and removes sessions. The caller may omit a change of a session that neither
// before nor afterwards needs attention, is interrupted or has a client attached to its terminal.
func (n *Notifier) Update(changes []Change) {
	if len(changes) == 0 {
		return
	}
	n.post(func() {
		for _, c := range changes {
			if c.Session == nil {
				n.policy.Remove(c.ID)
				delete(n.confirmed, c.ID)
			} else {
				n.policy.Set(c.Session)
			}
		}
		if n.ready && n.policy.isRemote() {
			n.policy.LoggedIn(time.Now()) // a reboot of that machine may have suspended the sessions
		}
	})
}

// Begin starts to show and close notices. The caller has published every existing session before.
// The result is closed once Publish was called for the notifications of these sessions, if they are
// those of this machine.
func (n *Notifier) Begin() (published <-chan struct{}) {
	done := make(chan struct{})
	n.post(func() {
		n.beginning = done
		now := time.Now()
		n.ready, n.begun, n.screen.holdUntil = true, true, now.Add(holdTime)
		if n.policy.isRemote() {
			n.policy.Begin(now, n.screen.isShown)
			n.dirty = true
		}
	})
	return done
}

// Pause keeps the notices as they are until Begin is called, because the sessions of the other
// machine cannot be observed any more. Before Begin, the caller publishes all of them again.
func (n *Notifier) Pause() {
	n.post(func() {
		n.ready = false
		n.policy = NewPolicy(n.Settings, n.isEnabled(), n.policy.State())
		for _, e := range n.screen.entries {
			e.inherited = true
		}
		clear(n.confirmed)
	})
}

// ConfirmElsewhere records that another machine has shown a notice about what the session has
// needed attention for since that time. It returns once that is saved.
func (n *Notifier) ConfirmElsewhere(id string, since time.Time) error {
	return n.saved(func() bool { return n.policy.SetNotified(id, since, elsewhere) })
}

// LoggedIn is to be called once the sessions that are resumed at login have been resumed.
func (n *Notifier) LoggedIn() {
	n.post(func() {
		n.policy.LoggedIn(time.Now())
		n.dirty = true
	})
}

// Configure replaces the configuration.
func (n *Notifier) Configure(s Settings) {
	n.post(func() {
		before := n.isEnabled()
		n.Settings = s
		n.policy.Configure(s)
		for _, q := range n.hookQueues {
			n.clearHookFailure(q) // the hook may have been repaired
		}
		n.enabledChanged(before)
	})
}

// SetEnabled turns notices on or off and returns once that is saved. The setting overrides the
// configuration until both agree.
func (n *Notifier) SetEnabled(enabled bool) error {
	return n.saved(func() bool {
		before := n.isEnabled()
		n.override = &enabled
		if enabled == n.Settings.Config.Notifications {
			n.override = nil
		}
		n.enabledChanged(before)
		return true
	})
}

// saved has the goroutine call change and, if that returns that it has changed something, waits
// until this is saved.
func (n *Notifier) saved(change func() bool) error {
	done := make(chan error, 1)
	n.post(func() {
		if !change() {
			done <- nil
			return
		}
		n.dirty = true
		n.waiting = append(n.waiting, done)
	})
	select {
	case err := <-done:
		return err
	case <-n.ctx.Done():
		return ErrClosed
	}
}

func (n *Notifier) isEnabled() bool {
	if n.override != nil {
		return *n.override
	}
	return n.Settings.Config.Notifications
}

// enabledChanged applies and announces a change of isEnabled, which returned before until now.
func (n *Notifier) enabledChanged(before bool) {
	if enabled := n.isEnabled(); enabled != before {
		n.policy.SetEnabled(enabled)
		n.Announce(enabled)
	}
}

// Close saves the state and stops the Notifier. Notices stay on the screen: the next Notifier
// adopts them.
func (n *Notifier) Close() error {
	idle := make(chan struct{})
	n.post(func() { n.idle = idle })
	limit, cancel := deadline.Context(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-idle:
	case <-limit.Done():
	}
	n.cancel()
	<-n.done
	if n.saving != nil {
		n.saveDone(<-n.saving)
	}
	for _, w := range n.waiting {
		w <- ErrClosed
	}
	if !n.begun {
		return nil
	}
	return n.write(n.encodeState())
}

// post has the goroutine call f. After Close, f is dropped.
func (n *Notifier) post(f func()) {
	select {
	case n.mailbox <- f:
	case <-n.ctx.Done():
	}
}

func (n *Notifier) run() {
	defer close(n.done)
	defer n.wake(time.Time{})
	for {
		select {
		case f := <-n.mailbox:
			f()
			n.drain()
		case signal, ok := <-n.signals:
			if !ok {
				n.signals = nil // the bus is lost, and the daemon will exit soon
				continue
			}
			n.handleSignal(signal)
		case err := <-n.saving:
			n.saveDone(err)
		case <-n.ctx.Done():
			return
		}
		switch {
		case n.idle != nil && !n.screen.isCalling:
			close(n.idle)
			<-n.ctx.Done()
			return
		case n.begun && n.idle == nil:
			now := time.Now()
			if n.ready {
				n.checkWatched()
				n.wake(now, n.syncScreen(now), n.sendEvents(now))
				n.recordShown()
				n.save()
				n.publish()
			} else {
				n.wake(now, n.syncScreen(now))
				n.save()
			}
		}
	}
}

// wake has the goroutine run at the earliest of these times, which replace those of the call
// before. Zero times are ignored.
func (n *Notifier) wake(now time.Time, times ...time.Time) {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return
	}
	n.timer = deadline.AfterFunc(slices.MinFunc(times, time.Time.Compare).Sub(now), func() { n.post(func() {}) })
}

// drain empties the mailbox, so that a burst is handled in one iteration.
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

// connect connects to the bus and begins to follow the owner of the server's name.
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
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(serverName),
		dbus.WithMatchInterface(serverName), dbus.WithMatchObjectPath(serverPath))
	if err == nil {
		server, err = bus.WatchOwner(ctx, conn.Conn, serverName)
	}
	if err != nil {
		n.cannotConnect(fmt.Errorf("cannot watch the notification server: %w", err))
		return
	}
	n.post(func() {
		n.screen.conn, n.screen.server = conn.Conn, server
		n.serverChanged(server.UniqueName())
		n.signals = signals // only now: they report the changes after WatchOwner
	})
}

func (n *Notifier) cannotConnect(err error) {
	if n.ctx.Err() == nil {
		n.LogError(fmt.Errorf("cannot send desktop notifications: %w", err))
	}
}

// checkWatched determines whether a person is watching the sessions for which the policy needs to
// know it.
func (n *Notifier) checkWatched() {
	for id, token := range n.policy.Undetermined() {
		if n.screen.checking[id] == token {
			continue
		}
		n.screen.checking[id] = token
		go func() {
			watched := n.IsWatched(n.ctx, id)
			n.post(func() {
				if n.screen.checking[id] == token {
					delete(n.screen.checking, id)
				}
				n.policy.SetWatched(id, token, watched)
			})
		}()
	}
}

// recordShown records that somebody was notified of the sessions whose notices are shown, here or,
// if they are on another machine, there.
func (n *Notifier) recordShown() {
	for id, since := range n.policy.Unconfirmed(n.screen.isShown) {
		switch {
		case !n.policy.isRemote():
			n.policy.SetNotified(id, since, here)
			n.dirty = true
		case !n.confirmed[id].Equal(since):
			n.confirmed[id] = since
			go n.Confirm(n.ctx, id, since)
		}
	}
}

// publish publishes what has changed of the sessions' notifications, with one call of Publish at a
// time. It does not wait, because the receiver may be waiting for the mailbox.
func (n *Notifier) publish() {
	if n.publishing || n.policy.isRemote() {
		return
	}
	changed, beginning := n.policy.Notifications(), n.beginning
	if len(changed) == 0 && beginning == nil {
		return
	}
	n.publishing, n.beginning = true, nil
	go func() {
		if len(changed) > 0 {
			n.Publish(changed)
		}
		if beginning != nil {
			close(beginning)
		}
		n.post(func() { n.publishing = false })
	}()
}

// save writes the file if necessary, one write at a time.
func (n *Notifier) save() {
	if !n.dirty || n.saving != nil {
		return
	}
	n.dirty, n.saving = false, make(chan error, 1)
	n.writing, n.waiting = n.waiting, nil
	content, done := n.encodeState(), n.saving
	go func() { done <- n.write(content) }()
}

// saveDone handles the result of a write.
func (n *Notifier) saveDone(err error) {
	n.saving = nil
	for _, w := range n.writing {
		w <- err
	}
	if err != nil && len(n.writing) == 0 {
		n.LogError(err)
	}
	n.writing = nil
}

// encodeState returns the content of the file.
func (n *Notifier) encodeState() []byte {
	content, err := json.Marshal(savedState{
		Notifications: n.override, PolicyState: n.policy.State(), Owner: n.screen.owner, Entries: n.screen.entries,
	})
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
