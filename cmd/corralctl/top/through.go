package top

import (
	"cmp"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/keys"
)

// through is the pass-through mode: each key that is pressed goes to one session. The session never
// changes while the mode lasts, and nothing but the leave key ends it: after the session has ended,
// keys go nowhere. They never reach the list, where they would mean something else.
type through struct {
	id      string
	created uint64 // tells the session from a later one of the same id
	place   int    // of the session in the list when the mode began
	needed  bool   // it needed a person then
	over    string // why keys go nowhere any more, "" while they are sent
	queue   []strokes
	sending bool // one is on its way: the next waits for it, as keys have to arrive in their order
}

// usualLeaveKey ends the pass-through mode where no other key is configured.
const usualLeaveKey = "C-q"

// leaveName is the key that ends the mode, as a person reads it.
func (m *model) leaveName() string {
	return keys.Label(cmp.Or(m.leaveKey, usualLeaveKey))
}

// isKey reports whether two names are of the same key: tmux has several for some.
func isKey(name, other string) bool {
	one, err := keys.Parse(name)
	two, otherErr := keys.Parse(other)
	return err == nil && otherErr == nil && one == two
}

// passThrough enters the mode.
func (m *model) passThrough(r *row) []effect {
	if why := refusal(pressIn, r); why != "" {
		m.complain("cannot send keys to " + r.Id + ": " + why)
		return nil
	}
	m.through = &through{id: r.Id, created: r.Timestamp, place: m.place, needed: needsPerson(r)}
	m.preview.bottom()
	m.scroll()
	return nil
}

// leaveThrough ends the mode. What was typed before is still sent.
func (m *model) leaveThrough() {
	if len(m.through.queue) > 0 {
		m.say("The last keys are still being sent to " + m.through.id + ".")
	}
	t := m.through
	m.draining, m.through = t, nil
	m.guard = m.time().Add(guardTime)
	m.unread = m.guard
	if r := m.rows[t.id]; t.needed && (r == nil || !needsPerson(r)) {
		m.choose(t.place)
	}
	m.scroll()
}

// checkThrough ends the sending of keys when their session is gone.
func (m *model) checkThrough() {
	t := m.through
	if t == nil || t.over != "" {
		return
	}
	switch r := m.rows[t.id]; {
	case m.gone:
		t.stop("corrald is not running")
	case r == nil || r.Timestamp != t.created:
		t.stop("it was removed")
	default:
		if why := refusal(pressIn, r); why != "" {
			t.stop(why)
		}
	}
}

func (t *through) stop(why string) { t.over, t.queue = why, nil }

// passKey handles a key in the mode.
func (m *model) passKey(key tea.KeyPressMsg) []effect {
	t := m.through
	names := tmuxKeys(key.Key())
	switch {
	case len(names) == 1 && isKey(names[0], cmp.Or(m.leaveKey, usualLeaveKey)):
		m.leaveThrough()
	case t.over == "" && len(names) > 0:
		return m.give(t, strokes{id: t.id, keys: names})
	}
	return nil
}

// passText handles a paste in the mode.
func (m *model) passText(text string) []effect {
	t := m.through
	if t.over != "" || text == "" {
		return nil
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		m.complain("cannot paste: this is not valid UTF-8 text")
		return nil
	}
	return m.give(t, strokes{id: t.id, text: lineFeeds(text)})
}

// give sends keys after those that are on their way. Keys that wait are sent together.
func (m *model) give(t *through, p strokes) []effect {
	if n := len(t.queue); n > 0 && p.text == "" && t.queue[n-1].text == "" {
		t.queue[n-1].keys = append(t.queue[n-1].keys, p.keys...)
	} else {
		t.queue = append(t.queue, p)
	}
	return t.next()
}

// next sends what waits, unless something is on its way.
func (t *through) next() []effect {
	if t.sending || len(t.queue) == 0 {
		return nil
	}
	p := t.queue[0]
	if rest := len(p.keys) - maxKeys; rest > 0 {
		t.queue[0].keys = p.keys[maxKeys:]
		p.keys = p.keys[:maxKeys]
	} else {
		t.queue = t.queue[1:]
	}
	t.sending = true
	return []effect{p}
}

// maxKeys bounds the keys of one call, below the daemon's own limit.
const maxKeys = 500

// pressed is called when keys have arrived, or could not be sent.
func (m *model) pressed(answer pressed) []effect {
	m.preview.stale(answer.id)
	m.preview.soon = true
	t := m.through
	if t == nil || t.id != answer.id {
		t = m.draining
	}
	if t == nil || t.id != answer.id {
		return nil
	}
	t.sending = false
	if answer.err != nil {
		t.queue = nil // what was typed after a key that did not arrive must not arrive either
		m.complain(m.explain(string(pressIn), answer.id, answer.err))
		return nil
	}
	return t.next()
}

// lineFeeds replaces the line ends that terminals paste by line feeds.
func lineFeeds(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// specialKeys are tmux's names of the keys that have no text.
var specialKeys = map[rune]string{
	tea.KeyUp: "Up", tea.KeyDown: "Down", tea.KeyLeft: "Left", tea.KeyRight: "Right", tea.KeyInsert: "IC", tea.KeyDelete: "DC",
	tea.KeyPgUp: "PPage", tea.KeyPgDown: "NPage", tea.KeyHome: "Home", tea.KeyEnd: "End", tea.KeyEnter: "Enter", tea.KeyTab: "Tab",
	tea.KeyEscape: "Escape", tea.KeyBackspace: "BSpace", tea.KeySpace: "Space", tea.KeyKpEnter: "KPEnter",
	tea.KeyF1: "F1", tea.KeyF2: "F2", tea.KeyF3: "F3", tea.KeyF4: "F4", tea.KeyF5: "F5", tea.KeyF6: "F6",
	tea.KeyF7: "F7", tea.KeyF8: "F8", tea.KeyF9: "F9", tea.KeyF10: "F10", tea.KeyF11: "F11", tea.KeyF12: "F12",
}

// tmuxKeys are tmux's names for what was pressed: several where an input method brings several
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
	switch {
	case special && key.Code == tea.KeyTab && key.Mod&tea.ModShift != 0:
		name = "BTab"
	case special && key.Mod&tea.ModShift != 0:
		name = "S-" + name
	case !special && (key.Code <= ' ' || key.Code >= tea.KeyExtended || wording.Printable(string(key.Code)) != string(key.Code)):
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
