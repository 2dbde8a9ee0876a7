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

// binding is a key of the list and what it does. One of the functions is set.
type binding struct {
	key.Binding
	answers bool                          // it answers a question
	opens   bool                          // all that it does at once is to open something that names the session
	short   string                        // what it does, in the line at the bottom
	view    func(*model) []effect         // acts on what is shown
	one     func(*model, *row) []effect   // acts on the selected session
	many    func(*model, []*row) []effect // acts on the marked sessions, on the selected one where none is marked
}

func bind(names, does, short string, keys ...string) binding {
	return binding{Binding: key.NewBinding(key.WithKeys(keys...), key.WithHelp(names, does)), short: short}
}

func (b binding) views(act func(*model)) binding {
	b.view = func(m *model) []effect { act(m); return nil }
	return b
}

func (b binding) acts(act func(*model) []effect) binding { b.view = act; return b }

func (b binding) onOne(act func(*model, *row) []effect) binding { b.one = act; return b }

func (b binding) onMany(act func(*model, []*row) []effect) binding { b.many = act; return b }

func (b binding) opening() binding {
	b.opens = true
	return b
}

func (b binding) answer(v verb) binding {
	b.answers, b.many = true, calling(v)
	return b
}

// sessionKeys act on sessions, viewKeys on what is shown of them.
func sessionKeys() []binding {
	return []binding{
		bind("Enter a", "attach to its terminal", "attach", "enter", "a").onOne((*model).attach),
		bind("i", "pass keys on to it", "keys", "i").onOne((*model).passThrough),
		bind("s", "send a text", "send", "s").onMany((*model).send).opening(),
		bind("Y N", "approve, deny its request", "approve", "Y").answer(approve),
		bind("c", "mark as seen", "seen", "c").onMany(calling(ack)),
		bind("n", "new session", "new", "n").acts((*model).openForm),
		bind("r", "resume or start", "resume", "r").onMany((*model).resume),
		bind("R", "restart", "restart", "R").onMany((*model).restart),
		bind("z", "suspend, to resume later", "suspend", "z").onMany((*model).suspend),
		bind("S", "stop", "stop", "S").onMany((*model).stop),
		bind("f", "freeze or thaw", "freeze", "f").onMany((*model).freeze),
		bind("K F9", "send a signal", "signal", "K", "f9").onMany((*model).kill).opening(),
		bind("x", "kill leftover processes", "leftovers", "x").onMany((*model).reap),
		bind("E", "enable, disable at login", "enable", "E").onMany((*model).enable),
		bind("e", "edit its description", "describe", "e").onOne((*model).describe).opening(),
		bind("L", "edit its labels", "labels", "L").onOne((*model).label).opening(),
		bind("A", "archive: hide, keep record", "archive", "A").onMany((*model).archive),
		bind("d Del", "remove with its log", "remove", "d", "delete").onMany((*model).remove),
	}
}

func viewKeys() []binding {
	page := func(m *model) int { return max(1, m.tableHeight()-1) }
	return []binding{
		bind("Tab S-Tab", "next, last that needs you", "next", "tab").views(func(m *model) { m.next(1) }),
		bind("Space *", "mark it, all", "mark", "space").views((*model).mark),
		bind("Esc", "clear marks, then filter", "clear", "esc").views((*model).clear),
		bind("/", "filter by words", "filter", "/").views((*model).openFilter),
		bind("l", "read its log", "log", "l").onOne(showing(logs)).opening(),
		bind("v w", "its status; why it is so", "status", "v").onOne(showing(status)).opening(),
		bind("D", "diff of its workspace", "diff", "D").onOne(showing(diff)).opening(),
		bind("o", "change the order", "order", "o").views(func(m *model) { m.orderBy(m.sort.next()) }),
		bind("C", "choose the columns", "columns", "C").views((*model).openColumns),
		bind("t", "group: workspace, label", "group", "t").acts((*model).nextGroup),
		bind("p", "preview on or off", "preview", "p").acts((*model).togglePreview),
		bind("+ -", "larger, smaller preview", "size", "+", "=").acts(func(m *model) []effect { return m.resizePreview(shareStep) }),
		bind("C-u C-d", "scroll the preview", "scroll", "ctrl+u").views(func(m *model) { m.scrollPreview(-m.previewHeight() / 2) }),
		bind("↑ ↓ j k", "select; also PgUp, PgDn", "select", "up", "k").views(func(m *model) { m.selectBy(m.place - 1) }),
		bind("g G", "first, last; Home, End", "ends", "home", "g").views(func(m *model) { m.selectBy(0) }),
		bind("M", "mouse on or off", "mouse", "M").acts((*model).toggleMouse),
		bind("? q", "this help; quit", "help", "?", "h", "f1").views((*model).openHelp),
		bind("", "", "", "down", "j").views(func(m *model) { m.selectBy(m.place + 1) }),
		bind("", "", "", "pgup", "ctrl+b").views(func(m *model) { m.selectBy(m.place - page(m)) }),
		bind("", "", "", "pgdown", "ctrl+f").views(func(m *model) { m.selectBy(m.place + page(m)) }),
		bind("", "", "", "end", "G").views(func(m *model) { m.selectBy(len(m.order) - 1) }),
		bind("", "", "", "shift+tab").views(func(m *model) { m.next(-1) }),
		bind("", "", "", "*").views((*model).markAll),
		bind("", "", "", "N").answer(deny),
		bind("", "", "", "w").onOne(showing(why)).opening(),
		bind("", "", "", "-", "_").acts(func(m *model) []effect { return m.resizePreview(-shareStep) }),
		bind("", "", "", "ctrl+d").views(func(m *model) { m.scrollPreview(m.previewHeight() / 2) }),
		bind("", "", "", "shift+up").views(func(m *model) { m.scrollPreview(-1) }),
		bind("", "", "", "shift+down").views(func(m *model) { m.scrollPreview(1) }),
		bind("", "", "", "q").acts(func(*model) []effect { return []effect{quit{}} }),
		bind("", "", "", "ctrl+z").acts(func(*model) []effect { return []effect{suspendSelf{}} }),
	}
}

// Keys are the names of all keys of the list, for the manual.
func Keys() []string {
	var names []string
	for _, b := range named(slices.Concat(sessionKeys(), viewKeys())) {
		names = append(names, strings.Fields(b.Help().Key)...)
	}
	return names
}

// press handles a key for the list.
func (m *model) press(pressed tea.KeyPressMsg) []effect {
	for _, b := range slices.Concat(viewKeys(), sessionKeys()) {
		if key.Matches(pressed, b.Binding) {
			return m.do(b)
		}
	}
	return nil
}

// do does what a key is for. What acts on a session is refused while there is no daemon, and just
// after the selection has moved by itself.
func (m *model) do(b binding) []effect {
	if b.view != nil {
		return b.view(m)
	}
	r := m.selected()
	if r == nil {
		return nil
	}
	why := m.guarded(b.answers)
	switch {
	case m.gone:
		m.complain("corrald is not running")
		return nil
	case why != "" && !b.opens && (b.one != nil || len(m.marked) == 0):
		m.say(why)
		return nil
	case b.one != nil:
		return b.one(m, r)
	}
	return b.many(m, m.subjects())
}

// helper is the renderer of keys and what they do.
func helper(separator string) help.Model {
	h := help.New()
	bold, dim := lipgloss.NewStyle().Bold(true), lipgloss.NewStyle().Faint(true)
	h.Styles = help.Styles{ShortKey: bold, ShortDesc: dim, FullKey: bold}
	h.ShortSeparator, h.FullSeparator = separator, separator
	return h
}

// helpText is the help, in two columns where there is room.
func helpText(width int) string {
	columns := [][]key.Binding{named(sessionKeys()), named(viewKeys())}
	h := helper("   ")
	if text := h.FullHelpView(columns); lipgloss.Width(text) <= width {
		return text
	}
	return h.FullHelpView([][]key.Binding{slices.Concat(columns...)})
}

func named(bindings []binding) []key.Binding {
	var all []key.Binding
	for _, b := range bindings {
		if b.Help().Key != "" {
			all = append(all, b.Binding)
		}
	}
	return all
}

// offered are the keys of the bottom line, those first that are of use for the selected session.
func (m *model) offered() []key.Binding {
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
		all[i] = hint(name, short[name])
	}
	return all
}
