package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor"
)

const (
	// A notice that no server has accepted is obsolete after keptFor.
	keptFor = 24 * time.Hour
	// More than maxAlone notices within burstTime become one summary, which later ones join for
	// burstTime.
	maxAlone  = 4
	burstTime = 10 * time.Second
)

// The keys of notices that are not about one session. None is a sessionKey.
const (
	summaryKey     = "summary"
	interruptedKey = "interrupted"
)

func sessionKey(id string) string { return "session " + id }

// Settings is the configuration of notifications.
type Settings struct {
	Config config.Config
	Agents map[string]config.Agent
	Home   string // of the user, which is shown as ~
}

// wants reports whether the user wants notices of this kind about the session.
func (s Settings) wants(n *supervisor.Snapshot, kind string) bool {
	if kind == "completed" && n.Exited.Sub(n.Started) < s.Config.NotifyAfter {
		return false
	}
	words := s.Config.Notify
	if own := s.Agents[n.Agent].Notify; own != nil {
		words = own
	}
	if label := n.Labels[config.NotifyLabel]; label != "" {
		if own, err := config.ParseNotify(label); err == nil {
			words = own
		}
	}
	return slices.Contains(words, kind)
}

// Place is where the request of a session is shown.
type Place string

const (
	Pending Place = ""       // to be decided by the next Look
	Asked   Place = "asked"  // to be decided once it is known whether a person is watching the session
	Alone   Place = "alone"  // a notice of its own
	Folded  Place = "folded" // part of the summary
	Seen    Place = "seen"   // nowhere
)

// item is a session that needs attention.
type item struct {
	n        *supervisor.Snapshot
	token    string
	place    Place
	delivery newsState
	since    time.Time // when it began to need it
	fresh    time.Time // when it was given a notice of its own
}

// urgency returns the urgency of a notice of this kind about the session: that of its agent's
// definition, else that of the configuration, else the default. The default is never critical:
// desktops show critical notices also while the user does not want to be disturbed.
func (s Settings) urgency(n *supervisor.Snapshot, kind string) Urgency {
	for _, configured := range []config.Urgencies{s.Agents[n.Agent].NotifyUrgency, s.Config.NotifyUrgency} {
		if level, ok := configured[kind]; ok {
			return Urgency(slices.Index(config.UrgencyLevels, level))
		}
	}
	if kind == "completed" {
		return Low
	}
	return Normal
}

// Desk decides which notices are on the user's screen. It is pure: its results depend on its inputs
// only. It belongs to one goroutine.
type Desk struct {
	settings      Settings
	on            bool
	sessions      map[string]*supervisor.Snapshot
	items         map[string]*item
	memory        Memory
	folded        time.Time   // when the last one was folded
	news          []time.Time // when the last ones were sent, burstTime ago at most
	sendingReboot bool        // the news of a reboot is being sent
}

// Memory is what a Desk has to know of the one before it. It reveals nothing of what an agent
// printed or reported.
type Memory struct {
	Items       map[string]Remembered `json:"items,omitempty"` // by session
	Summary     string                `json:"summary,omitempty"`
	Interrupted map[string]int64      `json:"interrupted,omitempty"` // by session, since when (Unix time, in µs): those with a notice
	Group       []string              `json:"group,omitempty"`       // those of them that the last notice is about
	Reboot      time.Time             `json:"reboot,omitzero"`       // when that was created
	Unsent      []string              `json:"owed,omitempty"`        // those that were interrupted and whose news is not sent yet
}

// Remembered is an item that was decided about.
type Remembered struct {
	Token  string `json:"token"`
	Place  Place  `json:"place"`
	Unsent bool   `json:"owed,omitempty"` // its news is not sent yet
}

// NewDesk creates a Desk that continues where another one has ended.
func NewDesk(s Settings, on bool, m Memory) *Desk {
	return &Desk{settings: s, on: on, sessions: map[string]*supervisor.Snapshot{}, items: map[string]*item{}, memory: m}
}

// Memory returns what the next Desk has to know.
func (d *Desk) Memory() Memory {
	m := d.memory
	m.Items = maps.Clone(d.memory.Items) // of sessions that have not been published again yet
	if m.Items == nil {
		m.Items = map[string]Remembered{}
	}
	for id, it := range d.items {
		if decided := it.place != Pending || it.delivery == sent; decided && it.place != Asked {
			m.Items[id] = Remembered{it.token, it.place, it.delivery != sent}
		}
	}
	return m
}

// Set adds or updates a session.
func (d *Desk) Set(n *supervisor.Snapshot) {
	d.sessions[n.ID] = n
	kind := kindOf(n.Attention)
	if n.Attention == "" || n.AttentionAcknowledged || !d.settings.wants(n, kind) {
		delete(d.items, n.ID)
		return
	}
	token := tokenOf(n)
	it := d.items[n.ID]
	if it != nil && it.token == token {
		it.n = n
		return
	}
	it = &item{n: n, token: token, since: n.AttentionSince}
	if before, ok := d.memory.Items[n.ID]; ok && before.Token == token {
		if it.place = before.Place; !before.Unsent {
			it.delivery = sent
		}
	} else if n.ByWish {
		it.place, it.delivery = Seen, sent
	} else if n.Attached {
		it.place = Asked
	} else if !d.on {
		it.place = Seen
	}
	delete(d.memory.Items, n.ID)
	d.items[n.ID] = it
}

// tokenOf returns a token that identifies this request of the session.
func tokenOf(n *supervisor.Snapshot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", n.Attention, n.AttentionSource, n.AttentionMessage, n.AttentionSince.UnixMicro()))
	return hex.EncodeToString(sum[:8])
}

// Remove removes a session.
func (d *Desk) Remove(id string) {
	delete(d.sessions, id)
	delete(d.items, id)
	delete(d.memory.Items, id)
}

// Configure replaces the settings.
func (d *Desk) Configure(s Settings) {
	d.settings = s
	for _, n := range d.sessions {
		d.Set(n)
	}
}

// SetEnabled turns notices on and off. Requests made while they were off are not shown later.
func (d *Desk) Switch(on bool) {
	d.on = on
	for _, it := range d.items {
		if !on && it.place != Asked {
			it.place = Seen
		}
	}
}

// LoggedIn reports that the sessions that are restored at login have been: the others are left to
// the user.
func (d *Desk) LoggedIn(now time.Time) {
	known, group := map[string]int64{}, []string{}
	for id, n := range d.sessions {
		if !n.Interrupted || !d.settings.wants(n, kindSuspended) {
			continue
		}
		known[id] = n.StateChanged.UnixMicro()
		if d.memory.Interrupted[id] != known[id] {
			group = append(group, id)
		}
	}
	d.memory.Interrupted = known
	if len(group) == 0 {
		return
	}
	slices.Sort(group)
	d.memory.Unsent, d.sendingReboot = slices.Concat(d.memory.Unsent, group), false
	if d.on {
		d.memory.Group, d.memory.Reboot = group, now
	}
}

// Unsure returns the sessions for which Watched has to be called, and the token for it.
func (d *Desk) Unsure() map[string]string {
	unsure := map[string]string{}
	for id, it := range d.items {
		if it.place == Asked {
			unsure[id] = it.token
		}
	}
	return unsure
}

// IsWatched reports whether a person is watching a session of Unsure.
func (d *Desk) Watched(id, token string, watched bool) {
	if it := d.items[id]; it != nil && it.token == token && it.place == Asked {
		it.place = Pending
		if watched || !d.on {
			it.place = Seen
		}
		if watched {
			it.delivery = sent
		}
	}
}

// Regroup has Look decide anew about all notices that were not shown: a server has appeared, and
// gets what has accumulated at once.
func (d *Desk) Regroup(shown func(key, token string) bool) {
	for id, it := range d.items {
		if it.place == Alone && !shown(sessionKey(id), it.token) {
			it.place, it.fresh = Pending, time.Time{}
		}
	}
}

// Look returns the notices that are to be on the screen now, the most urgent first. Shown reports
// whether a server has accepted a notice.
func (d *Desk) Look(now time.Time, shown func(key, token string) bool) []Notice {
	if !d.on {
		return nil
	}
	d.decide(now, shown)
	var notices []Notice
	var folded []*item
	for _, it := range d.items {
		switch it.place {
		case Alone:
			notice := noticeOf(it.n, it.token, d.settings)
			notice.Actions = withAnswers(notice.Actions, it.n, d.settings.Agents[it.n.Agent])
			notices = append(notices, notice)
		case Folded:
			folded = append(folded, it)
		}
	}
	if len(folded) > 0 {
		slices.SortFunc(folded, byAge)
		notices = append(notices, summaryOf(snapshots(folded), d.memory.Summary, d.settings))
	}
	if all := d.interrupted(now, shown); len(all) > 0 {
		notices = append(notices, interruptedNotice(all, d.rebootToken(), d.settings))
	}
	slices.SortFunc(notices, func(a, b Notice) int {
		if a.Urgency != b.Urgency {
			return int(b.Urgency) - int(a.Urgency)
		}
		return strings.Compare(a.Key, b.Key)
	})
	return notices
}

// decide assigns each item its place.
func (d *Desk) decide(now time.Time, shown func(key, token string) bool) {
	var pending, fresh []*item
	for id, it := range d.items {
		old := now.Sub(it.since) > keptFor
		switch {
		case old && (it.place == Pending || it.place == Alone && !shown(sessionKey(id), it.token) || it.place == Folded && !shown(summaryKey, d.memory.Summary)):
			it.place = Seen
		case it.place == Pending:
			pending = append(pending, it)
		case it.place == Alone && now.Sub(it.fresh) < burstTime:
			fresh = append(fresh, it)
		}
	}
	if len(pending) == 0 {
		return
	}
	slices.SortFunc(pending, byAge)
	if len(pending)+len(fresh) <= maxAlone && now.Sub(d.folded) >= burstTime {
		for _, it := range pending {
			it.place, it.fresh = Alone, now
		}
		return
	}
	sum := sha256.New()
	sum.Write([]byte(d.memory.Summary))
	for _, it := range append(pending, fresh...) {
		it.place = Folded
		sum.Write([]byte(it.token))
	}
	d.memory.Summary, d.folded = hex.EncodeToString(sum.Sum(nil)[:8]), now
}

// interrupted returns the sessions that the notice of a reboot is about, as far as they are still
// suspended.
func (d *Desk) interrupted(now time.Time, shown func(key, token string) bool) []*supervisor.Snapshot {
	if now.Sub(d.memory.Reboot) > keptFor && !shown(interruptedKey, d.rebootToken()) {
		return nil
	}
	return d.stillInterrupted(d.memory.Group)
}

// stillInterrupted returns those of the sessions that are still suspended by what interrupted them.
func (d *Desk) stillInterrupted(ids []string) []*supervisor.Snapshot {
	var all []*supervisor.Snapshot
	for _, id := range ids {
		if n := d.sessions[id]; n != nil && n.Interrupted && n.StateChanged.UnixMicro() == d.memory.Interrupted[id] {
			all = append(all, n)
		}
	}
	return all
}

func (d *Desk) rebootToken() string { return fmt.Sprint(d.memory.Reboot.UnixMicro()) }

func byAge(a, b *item) int {
	if c := a.since.Compare(b.since); c != 0 {
		return c
	}
	return strings.Compare(a.n.ID, b.n.ID)
}

func snapshots(items []*item) []*supervisor.Snapshot {
	all := make([]*supervisor.Snapshot, 0, len(items))
	for _, it := range items {
		all = append(all, it.n)
	}
	return all
}
