package notify

import (
	"maps"
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// A session can be shown on several machines: on its own, and on those where a Notifier follows it
// from afar. The Policy of its own machine decides whether a person is to be notified, publishes
// that (Notifications), and records whether somebody was (SetNotified). The others show what is
// published, and confirm what they have shown. What was shown anywhere is not shown later on a
// machine that was out of reach, or had no notification server, at that time (Begin, Regroup). All
// machines that can show it at that time do: it is not known where the person is.

// Notifications returns the notifications that have changed since the last call, by session.
func (p *Policy) Notifications() map[string]Notification {
	changed := map[string]Notification{}
	compare := func(id string) {
		now, before := p.notification(id), p.published[id]
		if now.Value != before.Value || !now.Since.Equal(before.Since) {
			changed[id], p.published[id] = now, now
		}
	}
	for id := range p.requests {
		compare(id)
	}
	for id := range p.state.Interrupted {
		compare(id)
	}
	for id := range p.published {
		compare(id)
	}
	maps.DeleteFunc(p.published, func(_ string, n Notification) bool { return n.Value == "" })
	return changed
}

// notification returns whether a person is to be notified of the session.
func (p *Policy) notification(id string) Notification {
	n := p.sessions[id]
	where, isPending := nowhere, false
	if r := p.requests[id]; r != nil {
		where, isPending = r.notified, r.placement != Hidden && r.placement != Checking
	} else if p.isAnnounced(n) && n.Attention == "" {
		where, isPending = p.state.RebootNotified[id], true
	}
	switch {
	case where != nowhere:
		return Notification{word.Shown, n.since()}
	case isPending:
		return Notification{word.Pending, n.since()}
	}
	return Notification{}
}

// SetNotified records where a notice was shown that is about what the session has needed attention
// for since that time. It reports whether nobody was notified of it before.
func (p *Policy) SetNotified(id string, since time.Time, where notified) bool {
	n := p.sessions[id]
	if n == nil || n.since().UnixMicro() != since.UnixMicro() {
		return false
	}
	if r := p.requests[id]; r != nil {
		if r.notified != nowhere {
			return false
		}
		r.notified = where
		return true
	}
	if n.Attention != "" || !p.isAnnounced(n) || p.state.RebootNotified[id] != nowhere {
		return false
	}
	if p.state.RebootNotified == nil {
		p.state.RebootNotified = map[string]notified{}
	}
	p.state.RebootNotified[id] = where
	return true
}

// Unconfirmed returns the sessions of which a notice is shown although nobody is known to have been
// notified of them, and since when they have needed attention. isShown reports whether a server has
// accepted a notice.
func (p *Policy) Unconfirmed(isShown func(key, token string) bool) map[string]time.Time {
	all := map[string]time.Time{}
	add := func(n *Session, where notified) {
		if p.isRemote() && n.Notification == word.Pending || !p.isRemote() && where == nowhere {
			all[n.ID] = n.since()
		}
	}
	for id, r := range p.requests {
		if p.isPlacedOnScreen(id, r, isShown) {
			add(r.session, r.notified)
		}
	}
	if isShown(interruptedKey, p.rebootToken()) {
		for _, n := range p.stillInterrupted(p.state.Group) {
			add(n, p.state.RebootNotified[n.ID])
		}
	}
	return all
}

// Begin is to be called once all sessions of another machine are known, after each gap: what was
// shown elsewhere meanwhile is not shown here. The rest is as if LoggedIn were called.
func (p *Policy) Begin(now time.Time, isShown func(key, token string) bool) {
	for id := range p.state.Requests {
		if p.sessions[id] == nil {
			delete(p.state.Requests, id)
		}
	}
	if p.state.Interrupted == nil {
		p.state.Interrupted = map[string]int64{}
	}
	for id, n := range p.sessions {
		if n.Interrupted && n.Notification != word.Pending && p.isWanted(n, kindSuspended) {
			p.state.Interrupted[id] = n.StateChanged.UnixMicro()
		}
	}
	p.skip(isShown, func(n *Session, _ notified) bool { return n.Notification != word.Pending })
	p.LoggedIn(now)
}

// skip removes from the screen what isNotified returns true for, unless it is shown already.
func (p *Policy) skip(isShown func(key, token string) bool, isNotified func(*Session, notified) bool) {
	for id, r := range p.requests {
		if r.isPlaced() && isNotified(r.session, r.notified) && !p.isPlacedOnScreen(id, r, isShown) {
			r.placement = Skipped
		}
	}
	if isShown(interruptedKey, p.rebootToken()) {
		return
	}
	group := []string{}
	for _, n := range p.stillInterrupted(p.state.Group) {
		if !isNotified(n, p.state.RebootNotified[n.ID]) {
			group = append(group, n.ID)
		}
	}
	p.state.Group = group
}

// isPlaced reports whether the request has, or is to be given, a place on the screen.
func (r *request) isPlaced() bool {
	return r.placement == Undecided || r.placement == OwnNotice || r.placement == InSummary
}

// isPlacedOnScreen reports whether a server has accepted the notice that the request is part of.
func (p *Policy) isPlacedOnScreen(id string, r *request, isShown func(key, token string) bool) bool {
	return r.placement == OwnNotice && isShown(sessionKey(id), r.token) ||
		r.placement == InSummary && isShown(summaryKey, p.state.Summary)
}
