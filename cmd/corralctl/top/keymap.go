package top

import (
	"slices"
	"strings"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// binding is a key of the list with its action. One of the functions is set.
type binding struct {
	key.Binding
	answers   bool                          // it answers a question
	onlyOpens bool                          // its only direct effect is to open something that names the session
	short     string                        // description in the bottom line
	onView    func(*model) []effect         // acts on the view
	onOne     func(*model, *row) []effect   // acts on the selected session
	onMany    func(*model, []*row) []effect // acts on the marked sessions, else on the selected one
}

func bind(names, description, short string, keys ...string) binding {
	return binding{Binding: key.NewBinding(key.WithKeys(keys...), key.WithHelp(names, description)), short: short}
}

func (b binding) changesView(act func(*model)) binding {
	b.onView = func(m *model) []effect { act(m); return nil }
	return b
}

func (b binding) actsOnView(act func(*model) []effect) binding { b.onView = act; return b }

func (b binding) actsOnOne(act func(*model, *row) []effect) binding { b.onOne = act; return b }

func (b binding) actsOnMany(act func(*model, []*row) []effect) binding { b.onMany = act; return b }

func (b binding) opening() binding {
	b.onlyOpens = true
	return b
}

func (b binding) answer(v verb) binding {
	b.answers, b.onMany = true, callAction(v)
	return b
}

// sessionKeys returns the keys that act on sessions.
func sessionKeys() []binding {
	return []binding{
		bind("Enter a", "attach to its terminal", "attach", "enter", "a").actsOnOne((*model).attach),
		bind("i", "pass keys on to it", "keys", "i").actsOnOne((*model).startPassThrough),
		bind("s", "send a text", "send", "s").actsOnMany((*model).send).opening(),
		bind("Y N", "approve, deny its request", "approve", "Y").answer(approve),
		bind("c", "mark as seen", "seen", "c").actsOnMany(callAction(ack)),
		bind("n", "new session", "new", "n").actsOnView((*model).openForm),
		bind("r", "resume or start", "resume", "r").actsOnMany((*model).resume),
		bind("R", "restart", "restart", "R").actsOnMany(callAction(restart)),
		bind("z", "suspend, to resume later", "suspend", "z").actsOnMany(callAction(suspend)),
		bind("S", "stop", "stop", "S").actsOnMany(callAction(stop)),
		bind("f", "freeze or thaw", "freeze", "f").actsOnMany((*model).freeze),
		bind("K F9", "send a signal", "signal", "K", "f9").actsOnMany((*model).kill).opening(),
		bind("x", "kill leftover processes", "leftovers", "x").actsOnMany((*model).reap),
		bind("E", "enable, disable at login", "enable", "E").actsOnMany((*model).enable),
		bind("e", "edit its description", "describe", "e").actsOnOne((*model).describe).opening(),
		bind("L", "edit its labels", "labels", "L").actsOnOne((*model).label).opening(),
		bind("A", "archive: hide, keep record", "archive", "A").actsOnMany(callAction(archive)),
		bind("d Del", "remove with its log", "remove", "d", "delete").actsOnMany((*model).remove),
	}
}

// viewKeys returns the keys that act on what is shown. Those without a name are not in the help,
// because the text of another key mentions them.
func viewKeys() []binding {
	page := func(m *model) int { return max(1, m.tableHeight()-1) }
	return []binding{
		bind("Tab S-Tab", "next, last that needs you", "next", "tab").
			changesView(func(m *model) { m.selectNextWaiting(1) }),
		bind("Space *", "mark it, all", "mark", "space").changesView((*model).mark),
		bind("Esc", "clear marks, then filter", "clear", "esc").changesView((*model).clear),
		bind("/", "filter by words", "filter", "/").changesView((*model).openFilter),
		bind("l", "read its log", "log", "l").actsOnOne(showAction(logs)).opening(),
		bind("v w", "its status; why it is so", "status", "v").actsOnOne(showAction(status)).opening(),
		bind("D", "diff of its workspace", "diff", "D").actsOnOne(showAction(diff)).opening(),
		bind("o", "change the order", "order", "o").changesView(func(m *model) { m.orderBy(m.sort.next()) }),
		bind("C", "choose the columns", "columns", "C").changesView((*model).openColumns),
		bind("t", "group: workspace, label", "group", "t").actsOnView((*model).nextGroup),
		bind("p", "preview on or off", "preview", "p").actsOnView((*model).togglePreview),
		bind("+ -", "larger, smaller preview", "size", "+", "=").
			actsOnView(func(m *model) []effect { return m.resizePreview(shareStep) }),
		bind("C-u C-d", "scroll the preview", "scroll", "ctrl+u").
			changesView(func(m *model) { m.scrollPreview(-m.previewHeight() / 2) }),
		bind("↑ ↓ j k", "select; also PgUp, PgDn", "select", "up", "k").
			changesView(func(m *model) { m.selectByUser(m.index - 1) }),
		bind("g G", "first, last; Home, End", "ends", "home", "g").changesView(func(m *model) { m.selectByUser(0) }),
		bind("M", "mouse on or off", "mouse", "M").actsOnView((*model).toggleMouse),
		bind("? q", "this help; quit", "help", "?", "h", "f1").changesView((*model).openHelp),
		bind("", "", "", "down", "j").changesView(func(m *model) { m.selectByUser(m.index + 1) }),
		bind("", "", "", "pgup", "ctrl+b").changesView(func(m *model) { m.selectByUser(m.index - page(m)) }),
		bind("", "", "", "pgdown", "ctrl+f").changesView(func(m *model) { m.selectByUser(m.index + page(m)) }),
		bind("", "", "", "end", "G").changesView(func(m *model) { m.selectByUser(len(m.order) - 1) }),
		bind("", "", "", "shift+tab").changesView(func(m *model) { m.selectNextWaiting(-1) }),
		bind("", "", "", "*").changesView((*model).markAll),
		bind("", "", "", "N").answer(deny),
		bind("", "", "", "w").actsOnOne(showAction(why)).opening(),
		bind("", "", "", "-", "_").actsOnView(func(m *model) []effect { return m.resizePreview(-shareStep) }),
		bind("", "", "", "ctrl+d").changesView(func(m *model) { m.scrollPreview(m.previewHeight() / 2) }),
		bind("", "", "", "shift+up").changesView(func(m *model) { m.scrollPreview(-1) }),
		bind("", "", "", "shift+down").changesView(func(m *model) { m.scrollPreview(1) }),
		bind("", "", "", "q").actsOnView(func(*model) []effect { return []effect{quit{}} }),
		bind("", "", "", "ctrl+z").actsOnView(func(*model) []effect { return []effect{suspendSelf{}} }),
	}
}

// Keys returns the names of all keys of the list, for the test of the manual.
func Keys() []string {
	var names []string
	for _, b := range withHelp(slices.Concat(sessionKeys(), viewKeys())) {
		names = append(names, strings.Fields(b.Help().Key)...)
	}
	return names
}

func (m *model) handleListKey(pressed tea.KeyPressMsg) []effect {
	for _, b := range slices.Concat(viewKeys(), sessionKeys()) {
		if key.Matches(pressed, b.Binding) {
			return m.runBinding(b)
		}
	}
	return nil
}

// runBinding runs the action of a key. An action on a session is refused while the daemon is not
// running and, unless it only opens something, right after the selection has moved without the
// user's doing.
func (m *model) runBinding(b binding) []effect {
	if b.onView != nil {
		return b.onView(m)
	}
	r := m.selected()
	if r == nil {
		return nil
	}
	reason := m.guardReason(b.answers)
	switch {
	case m.goneReason(r.Id) != "":
		m.showError(m.goneReason(r.Id))
		return nil
	case reason != "" && !b.onlyOpens && (b.onOne != nil || len(m.marked) == 0):
		m.showNotice(reason)
		return nil
	case b.onOne != nil:
		return b.onOne(m, r)
	}
	return b.onMany(m, m.affectedRows())
}

// newHelp returns a renderer of keys and their descriptions.
func newHelp(separator string) help.Model {
	h := help.New()
	bold, dim := lipgloss.NewStyle().Bold(true), lipgloss.NewStyle().Faint(true)
	h.Styles = help.Styles{ShortKey: bold, ShortDesc: dim, FullKey: bold}
	h.ShortSeparator, h.FullSeparator = separator, separator
	return h
}

// helpText returns the help, in two columns if they fit the width.
func helpText(width int) string {
	columns := [][]key.Binding{withHelp(sessionKeys()), withHelp(viewKeys())}
	h := newHelp("   ")
	if text := h.FullHelpView(columns); lipgloss.Width(text) <= width {
		return text
	}
	return h.FullHelpView([][]key.Binding{slices.Concat(columns...)})
}

// withHelp returns the bindings that have a name in the help.
func withHelp(bindings []binding) []key.Binding {
	var all []key.Binding
	for _, b := range bindings {
		if b.Help().Key != "" {
			all = append(all, b.Binding)
		}
	}
	return all
}

// offeredKeys returns the keys for the bottom line, the most useful ones for the selected session
// first.
func (m *model) offeredKeys() []key.Binding {
	names := []string{"?", "Tab", "Enter", "i", "s", "n", "l", "Space", "/", "r", "S", "z", "o", "D", "C", "t", "p", "q"}
	switch r := m.selected(); {
	case r == nil:
		names = []string{"?", "n", "/", "q"}
	case len(m.marked) > 0:
		names = []string{"?", "Esc", "Space", "s", "r", "S", "z", "c", "d", "A", "q"}
	case waitsForPermission(r):
		names = slices.Concat([]string{"?", "Y", "N"}, names[1:])
	case wording.IsEnded(r.State) || !r.hasScreen():
		names = []string{"?", "Tab", "r", "l", "v", "A", "d", "n", "Space", "/", "o", "q"}
	}
	short := map[string]string{}
	for _, b := range slices.Concat(sessionKeys(), viewKeys()) {
		first, _, _ := strings.Cut(b.Help().Key, " ")
		short[first] = b.short
	}
	short["N"], short["q"] = "deny", "quit"
	all := make([]key.Binding, len(names))
	for i, name := range names {
		all[i] = keyHint(name, short[name])
	}
	return all
}
