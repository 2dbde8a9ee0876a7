package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// barPrinter prints the counts of sessions for a status bar whenever they change.
type barPrinter struct {
	c           *ctl
	firstPrefix string           // before the first line
	prefix      string           // before every other line
	line        func(bar) string // without the newline
	last        string
	printed     bool
	gone        map[string]string // by host: why its sessions are not known
}

func (p *barPrinter) show(b bar) error {
	line := p.line(b)
	if p.printed && line == p.last {
		return nil
	}
	before := p.prefix
	if !p.printed {
		before = p.firstPrefix
	}
	p.last, p.printed = line, true
	_, err := p.c.out.WriteString(before + line + "\n")
	return err
}

// bar is the content of a status bar.
type bar struct {
	offline string // why nothing is known; "" otherwise

	running, waiting, turnsEnded, limited, errors, failed, stale int
	lines                                                        []string // one for each session that is live or urgent
}

func (p *barPrinter) start(all map[string]client.Session) error {
	if all == nil {
		return nil // daemonGone is called next
	}
	return p.update(all)
}

func (p *barPrinter) sessionChanged(_, _ *client.Session, all map[string]client.Session) error {
	return p.update(all)
}

func (p *barPrinter) daemonGone(host, why string, all map[string]client.Session) error {
	p.gone[host] = why
	return p.update(all)
}

func (p *barPrinter) daemonBack(host string, all map[string]client.Session) error {
	delete(p.gone, host)
	return p.update(all)
}

// update shows the sessions of the hosts that can be reached.
func (p *barPrinter) update(all map[string]client.Session) error {
	if len(p.gone) >= max(1, len(p.c.hosts)) {
		return p.show(bar{offline: slices.Sorted(maps.Values(p.gone))[0]})
	}
	return p.show(barOf(all, p.gone))
}

// barOf returns the content for the sessions of all hosts but those that are gone, which it
// mentions.
func barOf(all map[string]client.Session, gone map[string]string) bar {
	var b bar
	for _, s := range sortedSessions(all) {
		if host, _ := client.SplitID(s.Id); gone[host] != "" {
			continue
		}
		switch s.State {
		case word.Running:
			b.running++
		case word.Failed:
			b.failed++
		case word.Stale:
			b.stale++
		}
		switch {
		case wording.IsTurnEnded(s):
			b.turnsEnded++
		case wording.HasError(s):
			b.errors++
		case wording.IsLimited(s):
			b.limited++
		case wording.IsWaiting(s):
			b.waiting++
		}
		if wording.IsEnded(s.State) && s.State != word.Failed {
			continue
		}
		line := s.Id + ": " + s.State
		if activity, _ := wording.Activity(s); activity != "-" && s.State == word.Running {
			line = s.Id + ": " + activity
		}
		if text, _ := wording.Outcome(s); text != "" {
			line += ", " + text
		}
		b.lines = append(b.lines, wording.Printable(line))
	}
	for _, why := range slices.Sorted(maps.Values(gone)) {
		b.lines = append(b.lines, wording.Printable(why))
	}
	return b
}

// class returns one word for the most important state.
func (b bar) class() string {
	switch {
	case b.offline != "":
		return "offline"
	case b.waiting > 0:
		return word.Waiting
	case b.failed > 0 || b.errors > 0:
		return word.Failed
	case b.stale > 0:
		return word.Stale
	case b.limited > 0:
		return word.Limit
	case b.turnsEnded > 0:
		return word.TurnEnded
	case b.running > 0:
		return word.Running
	}
	return word.Idle
}

// barPart is one count of a bar. Its colour is #rrggbb, for bars that accept colours.
type barPart struct{ text, class, colour string }

// The bright colours of a terminal, because most bars have a dark background.
const (
	barGreen  = "#50fa7b"
	barYellow = "#f1fa8c"
	barRed    = "#ff5555"
	barCyan   = "#8be9fd"
	barGrey   = "#888888"
)

func (b bar) parts() []barPart {
	if b.offline != "" {
		return []barPart{{wording.Printable(b.offline), b.class(), barGrey}}
	}
	var parts []barPart
	add := func(n int, text, class, colour string) {
		if n > 0 {
			parts = append(parts, barPart{text, class, colour})
		}
	}
	count := func(n int, what, colour string) { add(n, fmt.Sprintf("%d %s", n, what), what, colour) }
	count(b.running, word.Running, barGreen)
	count(b.waiting, word.Waiting, barYellow)
	add(b.turnsEnded, wording.TurnsEnded(b.turnsEnded), word.TurnEnded, barCyan)
	add(b.limited, wording.Limited(b.limited), word.Limit, barYellow)
	add(b.errors, wording.Plural(b.errors, word.Error), word.Failed, barRed)
	count(b.failed, word.Failed, barRed)
	count(b.stale, word.Stale, barYellow)
	return parts
}

func (b bar) text() string {
	var texts []string
	for _, part := range b.parts() {
		texts = append(texts, part.text)
	}
	return strings.Join(texts, ", ")
}

// waybarLine formats a line for a custom module with "return-type": "json". See waybar-custom(5):
// text and tooltip are Pango markup, and a module without text is hidden.
func waybarLine(b bar) string {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return compactJSON(struct {
		Text    string `json:"text"`
		Alt     string `json:"alt"`
		Tooltip string `json:"tooltip"`
		Class   string `json:"class"`
	}{b.text(), b.class(), escape.Replace(strings.Join(b.lines, "\n")), b.class()})
}

// i3barLine formats an element of the endless array of i3bar's protocol, which swaybar uses too:
// see swaybar-protocol(7).
func i3barLine(b bar) string {
	type block struct {
		Name      string `json:"name"`
		Instance  string `json:"instance"`
		FullText  string `json:"full_text"`
		Colour    string `json:"color"`
		Urgent    bool   `json:"urgent"`
		Separator bool   `json:"separator"`
	}
	parts := b.parts()
	blocks := make([]block, 0, len(parts))
	for i, part := range parts {
		blocks = append(blocks,
			block{"corral", part.class, part.text, part.colour, part.class == word.Waiting, i == len(parts)-1})
	}
	return compactJSON(blocks)
}

// polybarLine formats a line for a custom/script module with "tail = true". Colours are format
// tags.
func polybarLine(b bar) string {
	var texts []string
	for _, part := range b.parts() {
		texts = append(texts, "%{F"+part.colour+"}"+part.text+"%{F-}")
	}
	return strings.Join(texts, " ")
}

// compactJSON formats a value on one line.
func compactJSON(value any) string {
	text, _ := encodeJSON(value, false) // it cannot fail for strings and numbers
	return strings.TrimSuffix(string(text), "\n")
}
