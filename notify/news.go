package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor"
)

// debt tells whether what a session wants a person for still has to be told as news.
type debt int

const (
	owed debt = iota
	telling
	paid
)

// News is what is told once, to those that take nothing back: hooks, and terminals that are attached to other sessions. It is told whether there is a
// notification server or not.
type News struct {
	Notice
	Event string                 // a word of Notify=, or "several"
	Since time.Time              // when the first of the sessions began to want a person
	About []*supervisor.Snapshot // the oldest first

	tokens map[string]string // by session: what is told of it; none where it is about a reboot
	begin  int               // how many hooks are still to begin with it
}

// eventSeveral is the event of news about sessions that want a person for one reason or another.
const eventSeveral = "several"

// News returns what is to be told now, and when there will be more if nothing else happens, the zero time if never. What it returns is being told, until
// Told says that it was. Whatever happens, there are no more than maxAlone within burstTime: what comes beyond that is told together after that.
func (d *Desk) News(now time.Time) (all []*News, next time.Time) {
	var items []*item
	for _, it := range d.items {
		switch {
		case it.owed != owed || it.place == Asked:
		case now.Sub(it.since) > keptFor:
			it.owed = paid
		default:
			items = append(items, it)
		}
	}
	reboot := d.owedOfReboot()
	if len(items) == 0 && len(reboot) == 0 {
		return nil, next
	}
	d.news = slices.DeleteFunc(d.news, func(at time.Time) bool { return now.Sub(at) >= burstTime })
	room := maxAlone - len(d.news)
	if room <= 0 {
		return nil, d.news[0].Add(burstTime)
	}
	if len(reboot) > 0 {
		d.telling = true
		all = append(all, newsOfReboot(reboot, fmt.Sprint(now.UnixMicro()), d.settings))
		room--
	}
	slices.SortFunc(items, byAge)
	switch {
	case len(items) == 0:
	case len(items) <= room:
		for _, it := range items {
			all = append(all, newsOf([]*item{it}, d.settings))
		}
	case room > 0:
		all = append(all, newsOf(items, d.settings))
	default:
		next = now.Add(burstTime)
	}
	for range all {
		d.news = append(d.news, now)
	}
	return all, next
}

// Told tells that everybody who is to be told was.
func (d *Desk) Told(news *News) {
	for id, token := range news.tokens {
		if it := d.items[id]; it != nil && it.token == token {
			it.owed = paid
		}
	}
	if news.tokens == nil {
		d.memory.Owed, d.telling = nil, false
	}
}

// owedOfReboot returns the sessions that were suspended by a reboot, and still are, if that was not told.
func (d *Desk) owedOfReboot() []*supervisor.Snapshot {
	if d.telling {
		return nil
	}
	all := d.stillInterrupted(d.memory.Owed)
	if len(all) == 0 {
		d.memory.Owed = nil
	}
	return all
}

func newsOf(items []*item, s Settings) *News {
	n := &News{About: snapshots(items), Since: items[0].since, tokens: map[string]string{}}
	for _, it := range items {
		it.owed = telling
		n.tokens[it.n.ID] = it.token
	}
	if len(items) == 1 {
		n.Notice, n.Event = noticeOf(items[0].n, items[0].token, s), kindOf(items[0].n.Attention)
	} else {
		n.Notice, n.Event = summaryOf(n.About, "", s), eventSeveral
	}
	return n
}

func newsOfReboot(about []*supervisor.Snapshot, token string, s Settings) *News {
	return &News{Notice: interruptedNotice(about, token, s), Event: kindSuspended, About: about, Since: about[0].StateChanged}
}

// together makes one of several: what has gathered for a hook that was busy. The parts are still what is told.
func together(parts []*News, settings Settings) *News {
	if len(parts) == 1 {
		return parts[0]
	}
	n := &News{Event: eventSeveral, Since: parts[0].Since}
	for _, p := range parts {
		for _, s := range p.About { // the last word of a session counts
			n.About = append(slices.DeleteFunc(n.About, func(before *supervisor.Snapshot) bool { return before.ID == s.ID }), s)
		}
	}
	n.Notice = summaryOf(n.About, "", settings)
	return n
}

// line says it in one line, for a terminal.
func (n *News) line() string {
	if len(n.About) == 1 {
		if asked := shortened(plain(n.About[0].AttentionMessage), maxAsked); asked != "" {
			return n.Title + ": " + asked
		}
		return n.Title
	}
	return n.Title + ": " + named(n.About, func(s *supervisor.Snapshot) string { return s.ID }, ", ")
}

// concerns tells whether it is about this session.
func (n *News) concerns(id string) bool {
	return slices.ContainsFunc(n.About, func(s *supervisor.Snapshot) bool { return s.ID == id })
}

// String is its word for other programs, as notify-send(1) has it.
func (u Urgency) String() string {
	return config.UrgencyLevels[min(u, Critical)]
}
