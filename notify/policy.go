package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
)

const (
	// A notice that no server has accepted within maxAge is dropped, unless it is about a session of
	// another machine, which may have been out of reach for days, and whose clock may be wrong.
	maxAge = 24 * time.Hour
	// More than burstLimit notices within burstWindow are replaced by one summary. Notices that
	// follow within another burstWindow become part of the summary as well.
	burstLimit  = 4
	burstWindow = 10 * time.Second
)

// The keys of notices that are not about one session. They differ from every result of sessionKey.
const (
	summaryKey     = "summary"
	interruptedKey = "interrupted"
)

func sessionKey(id string) string { return "session " + id }

// Settings is the configuration of notifications.
type Settings struct {
	Config config.Config
	Agents config.Agents
	Home   string // home directory of the user, shown as ~
	// Host is the name of the machine with the sessions, which begins the title of each notice; "" if
	// it is this one. The corrald of another machine decides which notices are wanted: Notify= and
	// NotifyAfterSec= of this machine apply only if it does not publish its decision.
	Host string
}

// isWanted reports whether the user wants notices of this kind about the session.
func (s Settings) isWanted(n *Session, kind string) bool {
	if kind == word.Completed && n.Exited.Sub(n.Started) < s.Config.NotifyAfter {
		return false
	}
	enabled := s.Config.Notify
	if def, _ := s.Agents.Find(n.Agent); def.Notify != nil {
		enabled = def.Notify
	}
	if label := n.Labels[config.NotifyLabel]; label != "" {
		if own, err := config.ParseNotify(label); err == nil {
			enabled = own
		}
	}
	return slices.Contains(enabled, kind)
}

// Placement is where the request of a session is shown.
type Placement string

const (
	Undecided Placement = ""       // the next call of Notices decides
	Checking  Placement = "asked"  // undecided until it is known whether a person watches the session
	OwnNotice Placement = "alone"  // a notice of its own
	InSummary Placement = "folded" // part of the summary
	Hidden    Placement = "seen"   // not shown: a person knows it
	// Skipped: not shown on this desktop. Notices were off, it is old, or it was shown elsewhere.
	Skipped Placement = "skipped"
)

// notified states on which machine a notice of a session was shown first.
type notified string

const (
	nowhere   notified = ""
	here      notified = "here"
	elsewhere notified = "elsewhere"
)

// Unpublished is the Notification of a session on another machine if the corrald there is of a
// version that does not have this property.
const Unpublished = "unpublished"

// Notification is the value of the property Notification of a session, "" if nobody is to be
// notified, and since when the session has needed the attention that it is about.
type Notification struct {
	Value string
	Since time.Time
}

// request is a session that needs attention, and what was decided about it.
type request struct {
	session     *Session
	token       string
	placement   Placement
	delivery    deliveryState // of the event about it
	notified    notified      // of a session of this machine
	requestedAt time.Time     // since when the session has needed attention
	placedAt    time.Time     // when it was given a notice of its own
}

// urgency returns the urgency of a notice of this kind about the session, as configured in its
// agent's definition, else in corral.conf, else the default. The default is never critical, because
// desktops show critical notices even in do-not-disturb mode.
func (s Settings) urgency(n *Session, kind string) Urgency {
	def, _ := s.Agents.Find(n.Agent)
	for _, configured := range []config.Urgencies{def.NotifyUrgency, s.Config.NotifyUrgency} {
		if level, ok := configured[kind]; ok {
			return Urgency(slices.Index(config.UrgencyLevels, level))
		}
	}
	if kind == word.Completed {
		return Low
	}
	return Normal
}

// Policy decides which notices are on the user's screen, and which events hooks and terminals are
// to receive. It is pure: its results depend on its inputs only. It belongs to one goroutine.
type Policy struct {
	settings      Settings
	enabled       bool // notices are shown
	sessions      map[string]*Session
	requests      map[string]*request // by session
	state         PolicyState
	lastSummary   time.Time   // when a request was last made part of the summary
	sentTimes     []time.Time // when the events of the last burstWindow were returned
	sendingReboot bool        // the event of a reboot is being sent

	published map[string]Notification // by session: as Notifications has last returned it
}

// PolicyState is the part of a Policy that is saved for the next daemon. It contains nothing that
// an agent printed or reported.
type PolicyState struct {
	Requests map[string]SavedRequest `json:"items,omitempty"` // by session
	Summary  string                  `json:"summary,omitempty"`
	// By session that a reboot has interrupted: the time of the interruption (Unix time, in µs).
	// LoggedIn has recorded it, and does not announce the same interruption again.
	Interrupted map[string]int64 `json:"interrupted,omitempty"`
	// By session in Interrupted: where somebody was notified of that.
	RebootNotified map[string]notified `json:"interrupted_notified,omitempty"`
	Group          []string            `json:"group,omitempty"` // the sessions in the last notice of a reboot
	Reboot         time.Time           `json:"reboot,omitzero"` // when that notice was created
	Unsent         []string            `json:"owed,omitempty"`  // interrupted sessions whose event is not yet sent
}

// SavedRequest is the saved decision about a request.
type SavedRequest struct {
	Token     string    `json:"token"`
	Placement Placement `json:"place"`
	Unsent    bool      `json:"owed,omitempty"` // its event is not yet sent
	Notified  notified  `json:"notified,omitempty"`
}

// NewPolicy creates a Policy from the saved state of an earlier one.
func NewPolicy(s Settings, enabled bool, state PolicyState) *Policy {
	return &Policy{
		settings: s, enabled: enabled, state: state,
		sessions: map[string]*Session{}, requests: map[string]*request{}, published: map[string]Notification{},
	}
}

// State returns the state to be saved.
func (p *Policy) State() PolicyState {
	state := p.state
	// The saved requests of sessions that this daemon has not published yet are kept.
	state.Requests = maps.Clone(p.state.Requests)
	if state.Requests == nil {
		state.Requests = map[string]SavedRequest{}
	}
	for id, r := range p.requests {
		isDecided := r.placement != Undecided || r.delivery == sent || r.notified != nowhere
		if isDecided && r.placement != Checking {
			state.Requests[id] = SavedRequest{r.token, r.placement, r.delivery != sent, r.notified}
		}
	}
	return state
}

// Set adds or updates a session.
func (p *Policy) Set(n *Session) {
	p.sessions[n.ID] = n
	kind := kindOf(n.Attention)
	if n.Attention == "" || n.AttentionAcknowledged || !p.isWanted(n, kind) {
		delete(p.requests, n.ID)
		return
	}
	token := tokenOf(n)
	r := p.requests[n.ID]
	if r != nil && r.token == token {
		r.session = n
		return
	}
	r = &request{session: n, token: token, requestedAt: n.AttentionSince}
	if before, ok := p.state.Requests[n.ID]; ok && before.Token == token {
		r.placement, r.notified = before.Placement, before.Notified
		if !before.Unsent {
			r.delivery = sent
		}
	} else if n.ByRequest {
		r.placement, r.delivery = Hidden, sent
	} else if n.Attached && !p.isRemote() {
		r.placement = Checking
	} else if !p.enabled {
		r.placement = Skipped
	}
	if p.isRemote() {
		r.delivery = sent // by the corrald of that machine
	}
	delete(p.state.Requests, n.ID)
	p.requests[n.ID] = r
}

// isRemote reports whether the sessions are those of another machine.
func (p *Policy) isRemote() bool { return p.settings.Host != "" }

// isWanted reports whether notices of this kind about the session are wanted.
func (p *Policy) isWanted(n *Session, kind string) bool {
	if p.isRemote() && n.Notification != Unpublished {
		return n.Notification != ""
	}
	return p.settings.isWanted(n, kind)
}

// tokenOf returns a token that identifies this request of the session.
func tokenOf(n *Session) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d",
		n.Attention, n.AttentionSource, n.AttentionMessage, n.AttentionSince.UnixMicro()))
	return hex.EncodeToString(sum[:8])
}

// Remove removes a session.
func (p *Policy) Remove(id string) {
	delete(p.sessions, id)
	delete(p.requests, id)
	delete(p.state.Requests, id)
}

// Configure replaces the settings.
func (p *Policy) Configure(s Settings) {
	p.settings = s
	for _, n := range p.sessions {
		p.Set(n)
	}
}

// SetEnabled turns notices on and off. Requests made while they were off are not shown later.
func (p *Policy) SetEnabled(enabled bool) {
	p.enabled = enabled
	for _, r := range p.requests {
		if !enabled && r.placement != Checking && r.placement != Hidden {
			r.placement = Skipped
		}
	}
}

// LoggedIn is to be called once the sessions that are resumed at login have been resumed. The
// sessions that a reboot has suspended and that are still suspended form a new event, and a new
// notice where notices are enabled: the user has to resume them. Those that an earlier call has
// announced are not among them.
func (p *Policy) LoggedIn(now time.Time) {
	known, group := map[string]int64{}, []string{}
	for id, n := range p.sessions {
		if !n.Interrupted {
			continue
		}
		since, isWanted := n.StateChanged.UnixMicro(), p.isWanted(n, kindSuspended)
		isNew := p.state.Interrupted[id] != since
		if isWanted && isNew {
			group = append(group, id)
			delete(p.state.RebootNotified, id)
		}
		// That an interruption was announced is kept until the corrald of another machine, after its
		// start, has decided again.
		if isWanted || !isNew && p.isRemote() {
			known[id] = since
		}
	}
	p.state.Interrupted = known
	maps.DeleteFunc(p.state.RebootNotified, func(id string, _ notified) bool { return known[id] == 0 })
	if len(group) == 0 {
		return
	}
	if p.isRemote() { // its sessions are published one after the other
		for _, n := range p.stillInterrupted(p.state.Group) {
			group = append(group, n.ID)
		}
	} else {
		p.state.Unsent, p.sendingReboot = slices.Concat(p.state.Unsent, group), false
	}
	slices.Sort(group)
	if p.enabled {
		p.state.Group, p.state.Reboot = group, now
	}
}

// Undetermined returns the tokens of the sessions for which SetWatched has to be called, by
// session.
func (p *Policy) Undetermined() map[string]string {
	tokens := map[string]string{}
	for id, r := range p.requests {
		if r.placement == Checking {
			tokens[id] = r.token
		}
	}
	return tokens
}

// SetWatched records whether a person is watching a session that Undetermined has returned with
// this token.
func (p *Policy) SetWatched(id, token string, watched bool) {
	if r := p.requests[id]; r != nil && r.token == token && r.placement == Checking {
		switch {
		case watched:
			r.placement, r.delivery = Hidden, sent
		case !p.enabled:
			r.placement = Skipped
		default:
			r.placement = Undecided
		}
	}
}

// Regroup withdraws the decisions about notices that no server has accepted yet. It is called when
// a server has appeared, so that what has accumulated meanwhile is shown at once, in a summary if
// it is much. What was shown on another machine meanwhile is not shown here. isShown reports
// whether a server has accepted a notice.
func (p *Policy) Regroup(isShown func(key, token string) bool) {
	p.skip(isShown, func(_ *Session, n notified) bool { return n == elsewhere })
	for id, r := range p.requests {
		if r.placement == OwnNotice && !isShown(sessionKey(id), r.token) {
			r.placement, r.placedAt = Undecided, time.Time{}
		}
	}
}

// Notices returns the notices that are to be on the screen now, the most urgent first. isShown
// reports whether a server has accepted a notice.
func (p *Policy) Notices(now time.Time, isShown func(key, token string) bool) []Notice {
	if !p.enabled {
		return nil
	}
	p.decide(now, isShown)
	var notices []Notice
	var inSummary []*request
	for _, r := range p.requests {
		switch r.placement {
		case OwnNotice:
			notices = append(notices, noticeOf(r.session, r.token, p.settings))
		case InSummary:
			inSummary = append(inSummary, r)
		}
	}
	if len(inSummary) > 0 {
		slices.SortFunc(inSummary, byAge)
		notices = append(notices, summaryOf(snapshots(inSummary), p.state.Summary, p.settings))
	}
	token := p.rebootToken()
	if now.Sub(p.state.Reboot) <= maxAge || isShown(interruptedKey, token) {
		if all := p.stillInterrupted(p.state.Group); len(all) > 0 {
			notices = append(notices, interruptedNotice(all, token, p.settings))
		}
	}
	slices.SortFunc(notices, func(a, b Notice) int {
		return cmp.Or(cmp.Compare(b.Urgency, a.Urgency), strings.Compare(a.Key, b.Key))
	})
	return notices
}

// decide assigns each request its placement.
func (p *Policy) decide(now time.Time, isShown func(key, token string) bool) {
	var undecided, recent []*request
	for id, r := range p.requests {
		unshown := r.isPlaced() && !p.isPlacedOnScreen(id, r, isShown)
		switch {
		case unshown && now.Sub(r.requestedAt) > maxAge && !p.isRemote():
			r.placement = Skipped
		case r.placement == Undecided:
			undecided = append(undecided, r)
		case r.placement == OwnNotice && now.Sub(r.placedAt) < burstWindow:
			recent = append(recent, r)
		}
	}
	if len(undecided) == 0 {
		return
	}
	slices.SortFunc(undecided, byAge)
	if len(undecided)+len(recent) <= burstLimit && now.Sub(p.lastSummary) >= burstWindow {
		for _, r := range undecided {
			r.placement, r.placedAt = OwnNotice, now
		}
		return
	}
	sum := sha256.New()
	sum.Write([]byte(p.state.Summary))
	for _, r := range append(undecided, recent...) {
		r.placement = InSummary
		sum.Write([]byte(r.token))
	}
	p.state.Summary, p.lastSummary = hex.EncodeToString(sum.Sum(nil)[:8]), now
}

// stillInterrupted returns those of the sessions that are still suspended by the same interruption.
func (p *Policy) stillInterrupted(ids []string) []*Session {
	var all []*Session
	for _, id := range ids {
		if n := p.sessions[id]; p.isAnnounced(n) {
			all = append(all, n)
		}
	}
	return all
}

// isAnnounced reports whether LoggedIn has recorded the interruption of the session.
func (p *Policy) isAnnounced(n *Session) bool {
	return n != nil && n.Interrupted && n.StateChanged.UnixMicro() == p.state.Interrupted[n.ID]
}

// rebootToken returns the token of the notice about sessions that a reboot has suspended.
func (p *Policy) rebootToken() string { return fmt.Sprint(p.state.Reboot.UnixMicro()) }

func byAge(a, b *request) int {
	return cmp.Or(a.requestedAt.Compare(b.requestedAt), strings.Compare(a.session.ID, b.session.ID))
}

func snapshots(requests []*request) []*Session {
	all := make([]*Session, 0, len(requests))
	for _, r := range requests {
		all = append(all, r.session)
	}
	return all
}
