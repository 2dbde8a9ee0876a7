package top

import (
	"cmp"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/keys"
)

// passThrough is the pass-through mode, in which each key that is pressed is sent to one session.
// The session never changes while the mode lasts, and only the leave key ends the mode: once the
// session has ended, keys are dropped. They must never reach the list, where they mean something
// else.
type passThrough struct {
	id           string
	created      uint64 // distinguishes the session from a later one of the same id
	index        int    // of the session in the list when the mode began
	neededPerson bool   // when the mode began
	stopReason   string // why keys are dropped, "" while they are sent
	queue        []sendKeys
	isSending    bool // a call is pending: the next waits for it, because keys have to arrive in order
}

// defaultLeaveKey ends the pass-through mode if no other key is configured.
const defaultLeaveKey = "C-q"

// leaveKeyName returns the name of the key that ends the mode, for the user.
func (m *model) leaveKeyName() string {
	return keys.Label(cmp.Or(m.leaveKey, defaultLeaveKey))
}

// isSameKey reports whether two names mean the same key: tmux has several names for some keys.
func isSameKey(a, b string) bool {
	keyA, errA := keys.Parse(a)
	keyB, errB := keys.Parse(b)
	return errA == nil && errB == nil && keyA == keyB
}

func (m *model) startPassThrough(r *row) []effect {
	if reason := refusal(passKeysTo, r); reason != "" {
		m.showError("cannot send keys to " + r.Id + ": " + reason)
		return nil
	}
	m.passThrough = &passThrough{id: r.Id, created: r.Timestamp, index: m.index, neededPerson: needsPerson(r)}
	m.preview.follow()
	m.scroll()
	return nil
}

// leavePassThrough ends the mode. Keys that were typed before are still sent.
func (m *model) leavePassThrough() {
	if len(m.passThrough.queue) > 0 {
		m.showNotice("The last keys are still being sent to " + m.passThrough.id + ".")
	}
	t := m.passThrough
	m.draining, m.passThrough = t, nil
	m.guardUntil = m.clock().Add(guardTime)
	m.answerGuardUntil = m.guardUntil
	if r := m.rows[t.id]; t.neededPerson && (r == nil || !needsPerson(r)) {
		m.selectIndex(t.index)
	}
	m.scroll()
}

// checkPassThrough drops further keys once their session cannot receive them.
func (m *model) checkPassThrough() {
	t := m.passThrough
	if t == nil || t.stopReason != "" {
		return
	}
	switch r := m.rows[t.id]; {
	case m.goneReason(t.id) != "":
		t.stop(m.goneReason(t.id))
	case r == nil || r.Timestamp != t.created:
		t.stop("it was removed")
	default:
		if reason := refusal(passKeysTo, r); reason != "" {
			t.stop(reason)
		}
	}
}

func (t *passThrough) stop(reason string) { t.stopReason, t.queue = reason, nil }

func (m *model) passKey(key tea.KeyPressMsg) []effect {
	t := m.passThrough
	names := tmuxKeys(key.Key())
	switch {
	case len(names) == 1 && isSameKey(names[0], cmp.Or(m.leaveKey, defaultLeaveKey)):
		m.leavePassThrough()
	case t.stopReason == "" && len(names) > 0:
		return m.queueKeys(t, sendKeys{id: t.id, keys: names})
	}
	return nil
}

func (m *model) passText(text string) []effect {
	t := m.passThrough
	if t.stopReason != "" || text == "" {
		return nil
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		m.showError("cannot paste: this is not valid UTF-8 text")
		return nil
	}
	return m.queueKeys(t, sendKeys{id: t.id, text: lineFeeds(text)})
}

// queueKeys queues keys for sending. Keys that wait in the queue are sent together.
func (m *model) queueKeys(t *passThrough, p sendKeys) []effect {
	if n := len(t.queue); n > 0 && p.text == "" && t.queue[n-1].text == "" {
		t.queue[n-1].keys = append(t.queue[n-1].keys, p.keys...)
	} else {
		t.queue = append(t.queue, p)
	}
	return t.sendNext()
}

// sendNext returns the effect that sends the next keys of the queue, unless a call is pending.
func (t *passThrough) sendNext() []effect {
	if t.isSending || len(t.queue) == 0 {
		return nil
	}
	p := t.queue[0]
	if rest := len(p.keys) - maxKeys; rest > 0 {
		t.queue[0].keys = p.keys[maxKeys:]
		p.keys = p.keys[:maxKeys]
	} else {
		t.queue = t.queue[1:]
	}
	t.isSending = true
	return []effect{p}
}

// maxKeys bounds the keys of one call, below the daemon's own limit.
const maxKeys = 500

func (m *model) keysSent(result keysSent) []effect {
	m.preview.markOutdated(result.id)
	m.preview.keySent = true
	t := m.passThrough
	if t == nil || t.id != result.id {
		t = m.draining
	}
	if t == nil || t.id != result.id {
		return nil
	}
	t.isSending = false
	if result.err != nil {
		t.queue = nil // keys that were typed after a lost key must not arrive without it
		m.showError(m.errorText(string(passKeysTo), result.id, result.err))
		return nil
	}
	return t.sendNext()
}

// lineFeeds replaces the line endings that terminals paste by line feeds.
func lineFeeds(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// specialKeys are tmux's names of the keys that have no text.
var specialKeys = map[rune]string{
	tea.KeyUp: "Up", tea.KeyDown: "Down", tea.KeyLeft: "Left", tea.KeyRight: "Right",
	tea.KeyPgUp: "PPage", tea.KeyPgDown: "NPage", tea.KeyHome: "Home", tea.KeyEnd: "End",
	tea.KeyInsert: "IC", tea.KeyDelete: "DC", tea.KeyBackspace: "BSpace", tea.KeyEscape: "Escape",
	tea.KeyEnter: "Enter", tea.KeyKpEnter: "KPEnter", tea.KeyTab: "Tab", tea.KeySpace: "Space",
	tea.KeyF1: "F1", tea.KeyF2: "F2", tea.KeyF3: "F3", tea.KeyF4: "F4", tea.KeyF5: "F5", tea.KeyF6: "F6",
	tea.KeyF7: "F7", tea.KeyF8: "F8", tea.KeyF9: "F9", tea.KeyF10: "F10", tea.KeyF11: "F11", tea.KeyF12: "F12",
}

// tmuxKeys returns tmux's names for a pressed key: several if an input method has entered several
// characters at once, none for a key that tmux does not know.
func tmuxKeys(key tea.Key) []string {
	const modifiers = tea.ModCtrl | tea.ModAlt | tea.ModMeta
	if key.Text != "" && key.Mod&modifiers == 0 {
		var names []string
		for _, r := range key.Text {
			if r == ' ' {
				names = append(names, "Space")
			} else {
				names = append(names, string(r))
			}
		}
		return names
	}
	name, special := specialKeys[key.Code]
	unprintable := key.Code <= ' ' || key.Code >= tea.KeyExtended ||
		wording.Printable(string(key.Code)) != string(key.Code)
	switch {
	case special && key.Code == tea.KeyTab && key.Mod&tea.ModShift != 0:
		name = "BTab"
	case special && key.Mod&tea.ModShift != 0:
		name = "S-" + name
	case !special && unprintable:
		return nil
	case !special && key.Mod&tea.ModShift != 0 && key.ShiftedCode != 0:
		name = string(key.ShiftedCode)
	case !special:
		name = string(key.Code)
	}
	if key.Mod&tea.ModCtrl != 0 {
		name = "C-" + name
	}
	if key.Mod&(tea.ModAlt|tea.ModMeta) != 0 {
		name = "M-" + name
	}
	return []string{name}
}
