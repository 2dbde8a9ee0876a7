package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// unannounced are properties whose changes corrald does not announce.
var unannounced = []string{
	"AttentionMessage", "StatusText", "LastActivityTimestamp", "ControlGroup", "Runs", "MemoryCurrent", "MemoryPeak",
	"CPUUsageNSec", "TasksCurrent", "QueuePosition",
}

// withoutUnannounced returns the session without these properties, so that reading it again makes
// no difference.
func withoutUnannounced(s client.Session) client.Session {
	fields := reflect.ValueOf(&s).Elem()
	for _, name := range unannounced {
		fields.FieldByName(name).SetZero()
	}
	return s
}

// differences returns the names of the properties that differ.
func differences(before, after client.Session) []string {
	var names []string
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Slice || x.Kind() == reflect.Map {
			if x.Len() == 0 && y.Len() == 0 {
				continue
			}
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			names = append(names, a.Type().Field(i).Name)
		}
	}
	return names
}

// jsonPrinter prints an object for each event. It begins with one for each existing session, so
// that no event is missed between list and monitor.
type jsonPrinter struct{ c *ctl }

// monitorEvent is one line of monitor --format=json. docs/reference/json.md documents it.
type monitorEvent struct {
	Time       uint64         // CLOCK_REALTIME, microseconds
	Event      string         // session, new, changed, removed, daemon-gone, daemon-back
	Host       string         `json:",omitempty"` // of daemon-gone and daemon-back with several hosts
	Id         string         `json:",omitempty"` //nolint:revive // the contract's name
	Properties map[string]any `json:",omitempty"`
	Before     map[string]any `json:",omitempty"`
}

func (p *jsonPrinter) print(event, id string, properties, before map[string]any) error {
	return p.printEvent(monitorEvent{Event: event, Id: id, Properties: properties, Before: before})
}

func (p *jsonPrinter) printEvent(line monitorEvent) error {
	line.Time = uint64(time.Now().UnixMicro())
	if p.c.json == "pretty" {
		return p.c.printJSON(line)
	}
	_, err := p.c.out.WriteString(compactJSON(line) + "\n")
	return err
}

func (p *jsonPrinter) start(sessions map[string]client.Session) error {
	for _, s := range sortedSessions(sessions) {
		if err := p.print("session", s.Id, sessionValues(s, nil), nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *jsonPrinter) sessionChanged(before, after *client.Session, _ map[string]client.Session) error {
	switch {
	case before == nil:
		return p.print("new", after.Id, sessionValues(*after, nil), nil)
	case after == nil:
		return p.print("removed", before.Id, nil, nil)
	}
	names := differences(*before, *after)
	return p.print("changed", after.Id, sessionValues(*after, names), sessionValues(*before, names))
}

func (p *jsonPrinter) daemonGone(host, _ string, _ map[string]client.Session) error {
	return p.printEvent(monitorEvent{Event: "daemon-gone", Host: host})
}
func (p *jsonPrinter) daemonBack(host string, _ map[string]client.Session) error {
	return p.printEvent(monitorEvent{Event: "daemon-back", Host: host})
}

// sessionValues returns the announced properties of a session by name; with names only those.
func sessionValues(s client.Session, names []string) map[string]any {
	values := map[string]any{}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(unannounced, name) || names != nil && !slices.Contains(names, name) {
			continue
		}
		values[name] = v.Field(i).Interface()
	}
	return values
}

// linePrinter prints a line for each event, for people.
type linePrinter struct{ c *ctl }

func (p *linePrinter) print(id, text string) error {
	clock := p.c.paint(wording.Dim, time.Now().Format(time.TimeOnly))
	if id != "" {
		id = p.c.paint(wording.Bold, wording.Printable(id)) + " "
	}
	_, err := fmt.Fprintf(p.c.out, "%s %s%s\n", clock, id, text)
	return err
}

func (p *linePrinter) daemonGone(_, why string, _ map[string]client.Session) error {
	return p.print("", wording.Printable(why)+"; waiting for it")
}
func (p *linePrinter) daemonBack(host string, _ map[string]client.Session) error {
	name := "corrald"
	if p.c.hasSeveralHosts() {
		name = p.c.hostNamed(host).String()
	}
	return p.print("", name+" is back; what has changed since:")
}

// start prints to standard error how many sessions are monitored, unless --quiet was given or there
// is no daemon.
func (p *linePrinter) start(sessions map[string]client.Session) error {
	if !p.c.quiet && sessions != nil {
		fmt.Fprintf(p.c.err, "Monitoring %s.\n", wording.Plural(len(sessions), "session"))
	}
	return nil
}

func (p *linePrinter) sessionChanged(before, after *client.Session, _ map[string]client.Session) error {
	switch {
	case before == nil:
		return p.print(after.Id, p.state(*after)+" ("+
			wording.Printable(after.Agent+" in "+
				wording.OnBranch(wording.AbbreviateHome(after.WorkingDirectory), after.Worktree))+")")
	case after == nil:
		return p.print(before.Id, "removed")
	}
	text := p.changes(*before, *after)
	if text == "" {
		return nil
	}
	return p.print(after.Id, text)
}

// printedProperties are the properties whose new value is printed. State and activity are printed
// in their own form, and the others follow from these.
var printedProperties = []string{"Description", "Labels", "OnLogin", "Frozen", "ConversationId"}

func (p *linePrinter) changes(before, after client.Session) string {
	var parts []string
	names := differences(before, after)
	if before.State != after.State {
		text := before.State + " -> " + p.state(after)
		if after.Reason != "" && after.Reason != before.Reason {
			text += " (" + wording.Printable(wording.Reason(after)) + ")"
		}
		parts = append(parts, text)
	}
	was, _ := wording.Activity(before)
	is, colour := wording.Activity(after)
	if was != is && is != "-" {
		parts = append(parts, p.c.paint(colour, wording.Printable(is)))
	} else if before.Attention != after.Attention && after.Attention != "" && after.Attention != after.State {
		parts = append(parts,
			p.c.paint(wording.Yellow, "wants attention: "+wording.Printable(wording.AttentionText(after.Attention))))
	}
	for _, name := range names {
		if slices.Contains(printedProperties, name) {
			parts = append(parts, name+"="+wording.Printable(propertyText(reflect.ValueOf(after).FieldByName(name).Interface())))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *linePrinter) state(s client.Session) string {
	return p.c.paint(wording.StateColour(client.Session{State: s.State}), wording.Printable(s.State))
}
