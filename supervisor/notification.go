package supervisor

import "time"

// Notification states whether a person is to be notified of a session, as the notifier has decided.
type Notification struct {
	Value string    // word.Pending or word.Shown
	Since time.Time // what it is about: since when the session has needed attention, or is suspended
}

// SetNotifications publishes these notifications, by session; the zero value removes one. Sessions
// that do not exist are ignored. It does not wait until that is published.
func (s *Supervisor) SetNotifications(all map[string]Notification) {
	s.loop.post(func() {
		for id, n := range all {
			if e, err := s.loop.sessions.find(id); err == nil && e.notification != n {
				e.notification = n
				e.markDirty()
			}
		}
	})
}

// notificationSince returns the Since of a notification about the session as it is now: one about
// an earlier request for attention is not published any more.
func (n *Snapshot) notificationSince() time.Time {
	if n.Attention != "" {
		return n.AttentionSince
	}
	return n.StateChanged
}
