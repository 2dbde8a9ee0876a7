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
	// A notice that no server has taken is of no use after keptFor.
	keptFor = 24 * time.Hour
	// More notices than maxAlone within burstTime become one, and what comes within burstTime after that joins it.
	maxAlone  = 4
	burstTime = 10 * time.Second
)

// The keys of notices that are not about one session. A session's begins with another word.
const (
	summaryKey     = "summary"
	interruptedKey = "interrupted"
)

func sessionKey(id string) string { return "session " + id }

// Settings is what is configured.
type Settings struct {
	Config config.Config
	Agents map[string]config.Agent
	Home   string // of the user, for people's eyes
}

// wants tells whether there is to be a notice of this kind.
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

// Place is what becomes of what a session wants attention for.
type Place string

const (
	Pending Place = ""       // to be decided at the next look
	Asked   Place = "asked"  // once it is known whether somebody sees the session anyway
	Alone   Place = "alone"  // a notice of its own
	Folded  Place = "folded" // part of the summary
	Seen    Place = "seen"   // none
)

// item is a session that wants attention.
type item struct {
	n     *supervisor.Snapshot
	token string
	place Place
	owed  debt
	since time.Time // when it began to want it
	fresh time.Time // when it was given a notice of its own
}

// urgency returns the urgency of a notice of this kind about the session: that of its agent's definition, else that of the configuration, else the default.
// The default is never critical: desktops show critical notices also while the user does not want to be disturbed.
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

// Desk decides what is to be on the user's screen. It is pure: what it says follows from what it was told. It belongs to one goroutine.
type Desk struct {
	settings Settings
	on       bool
	sessions map[string]*supervisor.Snapshot
	items    map[string]*item
	memory   Memory
	folded   time.Time   // when the last one was folded
	news     []time.Time // when the last ones were told, burstTime back at most
	telling  bool        // the group of a reboot is being told as news
}

// Memory is what a Desk has to know of the one before it. What it holds tells nothing of what an agent said.
type Memory struct {
	Items       map[string]Remembered `json:"items,omitempty"` // by session
	Summary     string                `json:"summary,omitempty"`
	Interrupted map[string]int64      `json:"interrupted,omitempty"` // by session, since when (Unix time, in µs): those that a notice was made for
	Group       []string              `json:"group,omitempty"`       // those of them that the last one is about
	Reboot      time.Time             `json:"reboot,omitzero"`       // when that was made
	Owed        []string              `json:"owed,omitempty"`        // those that were interrupted and not told of as news yet
}

// Remembered is an item that was decided about.
type Remembered struct {
	Token string `json:"token"`
	Place Place  `json:"place"`
	Owed  bool   `json:"owed,omitempty"` // it was not told as news yet
}

// NewDesk makes a Desk that goes on where another one has ended.
func NewDesk(s Settings, on bool, m Memory) *Desk {
	return &Desk{settings: s, on: on, sessions: map[string]*supervisor.Snapshot{}, items: map[string]*item{}, memory: m}
}

// Memory returns what the next Desk has to know.
func (d *Desk) Memory() Memory {
	m := d.memory
	m.Items = maps.Clone(d.memory.Items) // what was not told to want it again yet
	if m.Items == nil {
		m.Items = map[string]Remembered{}
	}
	for id, it := range d.items {
		if decided := it.place != Pending || it.owed == paid; decided && it.place != Asked {
			m.Items[id] = Remembered{it.token, it.place, it.owed != paid}
		}
	}
	return m
}

// Set tells of a session as it is now.
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
		if it.place = before.Place; !before.Owed {
			it.owed = paid
		}
	} else if n.ByWish {
		it.place, it.owed = Seen, paid
	} else if n.Attached {
		it.place = Asked
	} else if !d.on {
		it.place = Seen
	}
	delete(d.memory.Items, n.ID)
	d.items[n.ID] = it
}

// tokenOf tells what a session wants attention for from whatever else it may.
func tokenOf(n *supervisor.Snapshot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", n.Attention, n.AttentionSource, n.AttentionMessage, n.AttentionSince.UnixMicro()))
	return hex.EncodeToString(sum[:8])
}

// Remove tells that a session is gone.
func (d *Desk) Remove(id string) {
	delete(d.sessions, id)
	delete(d.items, id)
	delete(d.memory.Items, id)
}

// Configure takes other settings.
func (d *Desk) Configure(s Settings) {
	d.settings = s
	for _, n := range d.sessions {
		d.Set(n)
	}
}

// Switch turns notices on and off. What was wanted while they were off is not told later.
func (d *Desk) Switch(on bool) {
	d.on = on
	for _, it := range d.items {
		if !on && it.place != Asked {
			it.place = Seen
		}
	}
}

// LoggedIn tells that what is to be brought back at login has been: what is suspended still is for a person to resume.
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
	d.memory.Owed, d.telling = slices.Concat(d.memory.Owed, group), false
	if d.on {
		d.memory.Group, d.memory.Reboot = group, now
	}
}

// Unsure returns the sessions of which it has to be known whether somebody sees them, with the token to answer Watched with.
func (d *Desk) Unsure() map[string]string {
	unsure := map[string]string{}
	for id, it := range d.items {
		if it.place == Asked {
			unsure[id] = it.token
		}
	}
	return unsure
}

// Watched answers Unsure.
func (d *Desk) Watched(id, token string, watched bool) {
	if it := d.items[id]; it != nil && it.token == token && it.place == Asked {
		it.place = Pending
		if watched || !d.on {
			it.place = Seen
		}
		if watched {
			it.owed = paid
		}
	}
}

// Regroup has everything that was not told decided anew: a server has come, and what has gathered meanwhile is told at once.
func (d *Desk) Regroup(told func(key, token string) bool) {
	for id, it := range d.items {
		if it.place == Alone && !told(sessionKey(id), it.token) {
			it.place, it.fresh = Pending, time.Time{}
		}
	}
}

// Look returns what is to be on the screen now, the most urgent first. Told tells whether a notice was told already.
func (d *Desk) Look(now time.Time, told func(key, token string) bool) []Notice {
	if !d.on {
		return nil
	}
	d.decide(now, told)
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
	if all := d.interrupted(now, told); len(all) > 0 {
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

// decide gives every item its place.
func (d *Desk) decide(now time.Time, told func(key, token string) bool) {
	var pending, fresh []*item
	for id, it := range d.items {
		old := now.Sub(it.since) > keptFor
		switch {
		case old && (it.place == Pending || it.place == Alone && !told(sessionKey(id), it.token) || it.place == Folded && !told(summaryKey, d.memory.Summary)):
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

// interrupted returns the sessions that the notice of a reboot is about, as far as they are still suspended.
func (d *Desk) interrupted(now time.Time, told func(key, token string) bool) []*supervisor.Snapshot {
	if now.Sub(d.memory.Reboot) > keptFor && !told(interruptedKey, d.rebootToken()) {
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
