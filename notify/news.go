package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor"
)

// newsState is the progress of the news about a request.
type newsState int

const (
	unsent newsState = iota
	sending
	sent
)

// News is sent once, to recipients that cannot take it back: hooks, and terminals that are attached
// to other sessions. It is sent whether there is a notification server or not.
type News struct {
	Notice
	Event string                 // a word of Notify=, or "several"
	Since time.Time              // when the first of the sessions began to need attention
	About []*supervisor.Snapshot // the oldest first

	tokens map[string]string // by session: the request that it is about; nil for a reboot
	begin  int               // how many hooks have not started with it yet
}

// eventSeveral is the event of news about several sessions.
const eventSeveral = "several"

// News returns the news to be sent now, and the time at which there will be more if nothing else
// happens, zero for never. Its state is sending until Sent is called. There are never more than
// maxAlone within burstTime: what exceeds that is sent together afterwards.
func (d *Desk) News(now time.Time) (all []*News, next time.Time) {
	var items []*item
	for _, it := range d.items {
		switch {
		case it.delivery != unsent || it.place == Asked:
		case now.Sub(it.since) > keptFor:
			it.delivery = sent
		default:
			items = append(items, it)
		}
	}
	reboot := d.unsentOfReboot()
	if len(items) == 0 && len(reboot) == 0 {
		return nil, next
	}
	d.news = slices.DeleteFunc(d.news, func(at time.Time) bool { return now.Sub(at) >= burstTime })
	room := maxAlone - len(d.news)
	if room <= 0 {
		return nil, d.news[0].Add(burstTime)
	}
	if len(reboot) > 0 {
		d.sendingReboot = true
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

// Sent reports that all recipients have the news.
func (d *Desk) Sent(news *News) {
	for id, token := range news.tokens {
		if it := d.items[id]; it != nil && it.token == token {
			it.delivery = sent
		}
	}
	if news.tokens == nil {
		d.memory.Unsent, d.sendingReboot = nil, false
	}
}

// unsentOfReboot returns the sessions that were suspended by a reboot, and still are, if that news
// is not sent.
func (d *Desk) unsentOfReboot() []*supervisor.Snapshot {
	if d.sendingReboot {
		return nil
	}
	all := d.stillInterrupted(d.memory.Unsent)
	if len(all) == 0 {
		d.memory.Unsent = nil
	}
	return all
}

func newsOf(items []*item, s Settings) *News {
	n := &News{About: snapshots(items), Since: items[0].since, tokens: map[string]string{}}
	for _, it := range items {
		it.delivery = sending
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

// together merges the news that have accumulated for a hook that was busy.
func together(parts []*News, settings Settings) *News {
	if len(parts) == 1 {
		return parts[0]
	}
	n := &News{Event: eventSeveral, Since: parts[0].Since}
	for _, p := range parts {
		for _, s := range p.About { // the latest of a session applies
			n.About = append(slices.DeleteFunc(n.About, func(before *supervisor.Snapshot) bool { return before.ID == s.ID }), s)
		}
	}
	n.Notice = summaryOf(n.About, "", settings)
	return n
}

// line returns the news in one line, for a terminal.
func (n *News) line() string {
	if len(n.About) == 1 {
		if asked := shortened(plain(n.About[0].AttentionMessage), maxAsked); asked != "" {
			return n.Title + ": " + asked
		}
		return n.Title
	}
	return n.Title + ": " + named(n.About, func(s *supervisor.Snapshot) string { return s.ID }, ", ")
}

// concerns reports whether it is about this session.
func (n *News) concerns(id string) bool {
	return slices.ContainsFunc(n.About, func(s *supervisor.Snapshot) bool { return s.ID == id })
}

// String returns the name for other programs, as in notify-send(1).
func (u Urgency) String() string {
	return config.UrgencyLevels[min(u, Critical)]
}
