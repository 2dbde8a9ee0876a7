package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/plaintext"
)

// deliveryState is the progress of the event about a request.
type deliveryState int

const (
	unsent deliveryState = iota
	sending
	sent
)

// Event reports once, to hooks and in the terminals attached to other sessions, that sessions need
// attention. Unlike a notice it cannot be withdrawn. It is sent whether there is a notification
// server or not.
type Event struct {
	Notice
	Kind      string     // a value of Notify=, or eventSeveral
	Since     time.Time  // when the first of the sessions began to need attention
	Snapshots []*Session // of the sessions, the oldest request first

	tokens    map[string]string // by session: token of the request; nil for a reboot
	unstarted int               // number of hooks that have not started with it yet
}

// eventSeveral is the kind of an event about several sessions.
const eventSeveral = "several"

// Events returns the events to be sent now, and the time at which there will be more if nothing
// else happens, zero for never. Their requests are in the state sending until MarkSent is called.
// There are never more than burstLimit events within burstWindow: the rest is sent together
// afterwards.
func (p *Policy) Events(now time.Time) (all []*Event, next time.Time) {
	var requests []*request
	for _, r := range p.requests {
		switch {
		case r.delivery != unsent || r.placement == Checking:
		case now.Sub(r.requestedAt) > maxAge:
			r.delivery = sent
		default:
			requests = append(requests, r)
		}
	}
	reboot := p.unsentInterrupted()
	if len(requests) == 0 && len(reboot) == 0 {
		return nil, next
	}
	p.sentTimes = slices.DeleteFunc(p.sentTimes, func(at time.Time) bool {
		return now.Sub(at) >= burstWindow
	})
	room := burstLimit - len(p.sentTimes)
	if room <= 0 {
		return nil, p.sentTimes[0].Add(burstWindow)
	}
	if len(reboot) > 0 {
		p.sendingReboot = true
		all = append(all, eventOfReboot(reboot, fmt.Sprint(now.UnixMicro()), p.settings))
		room--
	}
	slices.SortFunc(requests, byAge)
	switch {
	case len(requests) == 0:
	case len(requests) <= room:
		for _, r := range requests {
			all = append(all, eventOf([]*request{r}, p.settings))
		}
	case room > 0:
		all = append(all, eventOf(requests, p.settings))
	default:
		next = now.Add(burstWindow)
	}
	for range all {
		p.sentTimes = append(p.sentTimes, now)
	}
	return all, next
}

// MarkSent records that all recipients have received the event.
func (p *Policy) MarkSent(e *Event) {
	for id, token := range e.tokens {
		if r := p.requests[id]; r != nil && r.token == token {
			r.delivery = sent
		}
	}
	if e.tokens == nil {
		p.state.Unsent, p.sendingReboot = nil, false
	}
}

// unsentInterrupted returns the sessions that a reboot has suspended, that are still suspended and
// whose event has not been sent.
func (p *Policy) unsentInterrupted() []*Session {
	if p.sendingReboot {
		return nil
	}
	all := p.stillInterrupted(p.state.Unsent)
	if len(all) == 0 {
		p.state.Unsent = nil
	}
	return all
}

func eventOf(requests []*request, s Settings) *Event {
	e := &Event{Snapshots: snapshots(requests), Since: requests[0].requestedAt, tokens: map[string]string{}}
	for _, r := range requests {
		r.delivery = sending
		e.tokens[r.session.ID] = r.token
	}
	if len(requests) == 1 {
		e.Notice, e.Kind = noticeOf(requests[0].session, requests[0].token, s), kindOf(requests[0].session.Attention)
	} else {
		e.Notice, e.Kind = summaryOf(e.Snapshots, "", s), eventSeveral
	}
	return e
}

func eventOfReboot(about []*Session, token string, s Settings) *Event {
	return &Event{
		Notice: interruptedNotice(about, token, s), Kind: kindSuspended,
		Snapshots: about, Since: about[0].StateChanged,
	}
}

// merge combines the events that have accumulated for a hook that was busy.
func merge(parts []*Event, settings Settings) *Event {
	if len(parts) == 1 {
		return parts[0]
	}
	e := &Event{Kind: eventSeveral, Since: parts[0].Since}
	for _, p := range parts {
		for _, s := range p.Snapshots { // the latest one of a session replaces earlier ones
			e.Snapshots = slices.DeleteFunc(e.Snapshots, func(before *Session) bool {
				return before.ID == s.ID
			})
			e.Snapshots = append(e.Snapshots, s)
		}
	}
	e.Notice = summaryOf(e.Snapshots, "", settings)
	return e
}

// line returns the event in one line, for a terminal.
func (e *Event) line() string {
	if len(e.Snapshots) == 1 {
		if question := truncate(plaintext.Line(e.Snapshots[0].AttentionMessage), maxQuestion); question != "" {
			return e.Title + ": " + question
		}
		return e.Title
	}
	return e.Title + ": " + listSessions(e.Snapshots, func(s *Session) string { return s.ID }, ", ")
}

// isAbout reports whether the event is about this session.
func (e *Event) isAbout(id string) bool {
	return slices.ContainsFunc(e.Snapshots, func(s *Session) bool { return s.ID == id })
}

// String returns the name that other programs use for the urgency, as in notify-send(1).
func (u Urgency) String() string {
	return config.UrgencyLevels[min(u, Critical)]
}
