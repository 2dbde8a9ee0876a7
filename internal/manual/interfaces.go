package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// member is a method, signal or property, with the comment that precedes it.
type member struct {
	kind, name, access string
	dbusType           string // type of a property
	in, out            []string
	emitsChanged       string // EmitsChangedSignal annotation of a property, "" for true
	notKnown           string // the value of a number that is not known, "" if it is always known
	comment            string
}

// iface is an interface of the contract.
type iface struct {
	name    string
	members []member
}

// kinds are the kinds of members, in the order of the documentation.
var kinds = []struct{ name, title string }{{"method", "Methods"}, {"signal", "Signals"}, {"property", "Properties"}}

// membersOf returns the members of one kind.
func (i iface) membersOf(kind string) []member {
	return slices.DeleteFunc(slices.Clone(i.members), func(m member) bool { return m.kind != kind })
}

// shortName returns the last component of the interface's name.
func (i iface) shortName() string { return i.name[strings.LastIndexByte(i.name, '.')+1:] }

// readInterfaces parses interface definitions. A session's method without a comment is documented
// by a reference to the Manager's method of the corresponding name.
func readInterfaces(definitions ...string) ([]iface, error) {
	var all []iface
	documented := map[string]bool{}
	for _, definition := range definitions {
		name, members, err := parseDefinition(definition)
		if err != nil {
			return nil, err
		}
		for i, m := range members {
			for _, counterpart := range []string{m.name + "Session", m.name} {
				if m.kind == "method" && m.comment == "" && documented[counterpart] {
					members[i].comment = "As the Manager's " + counterpart + "."
				}
			}
			documented[m.name] = documented[m.name] || m.comment != ""
		}
		all = append(all, iface{name, members})
	}
	return all, nil
}

// describe returns the documentation of the interfaces as sections of a manual page.
func describe(interfaces []iface) string {
	var page strings.Builder
	for _, i := range interfaces {
		for _, kind := range kinds {
			var entries []string
			for _, m := range i.membersOf(kind.name) {
				entries = append(entries, m.entry())
			}
			if len(entries) > 0 {
				fmt.Fprintf(&page, "# %s OF THE %s\n\n%s\n",
					strings.ToUpper(kind.title), strings.ToUpper(i.shortName()), strings.Join(entries, "\n"))
			}
		}
	}
	return page.String()
}

// parseDefinition parses an interface definition in the introspection format of the D-Bus
// specification.
func parseDefinition(definition string) (name string, members []member, err error) {
	decoder := xml.NewDecoder(strings.NewReader(definition))
	var comments []string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return name, members, nil
		}
		if err != nil {
			return "", nil, fmt.Errorf("cannot read the interface definition: %w", err)
		}
		switch t := token.(type) {
		case xml.Comment:
			comments = append(comments, sentence(strings.Join(strings.Fields(string(t)), " ")))
		case xml.StartElement:
			switch t.Name.Local {
			case "interface":
				name, comments = attribute(t, "name"), nil
			case "method", "signal", "property":
				members = append(members, member{
					kind:     t.Name.Local,
					name:     attribute(t, "name"),
					access:   attribute(t, "access"),
					dbusType: attribute(t, "type"),
					comment:  strings.Join(comments, " "),
				})
				comments = nil
			case "arg":
				m := &members[len(members)-1]
				text := strings.TrimSpace(attribute(t, "type") + " " + attribute(t, "name"))
				if attribute(t, "direction") == "out" {
					m.out = append(m.out, text)
				} else {
					m.in = append(m.in, text)
				}
			case "annotation":
				m := &members[len(members)-1]
				switch attribute(t, "name") {
				case "org.freedesktop.DBus.Property.EmitsChangedSignal":
					m.emitsChanged = attribute(t, "value")
				case "io.github.corrald.Corral1.NotKnown":
					m.notKnown = attribute(t, "value")
				}
			}
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// entry returns the member as an entry of a definition list.
func (m member) entry() string {
	var term string
	switch {
	case m.kind == "property":
		term = fmt.Sprintf("**%s** %s", m.name, escape(m.dbusType))
	case len(m.out) > 0:
		term = fmt.Sprintf("**%s**(%s) -> %s", m.name, escape(strings.Join(m.in, ", ")), escape(strings.Join(m.out, ", ")))
	default:
		term = fmt.Sprintf("**%s**(%s)", m.name, escape(strings.Join(m.in, ", ")))
	}
	return fmt.Sprintf("%s\n:   %s\n", term, escape(m.meaning()))
}

// meaning returns the description of the member in sentences.
func (m member) meaning() string {
	var sentences []string
	if m.comment != "" {
		sentences = append(sentences, m.comment)
	}
	if m.notKnown != "" {
		sentences = append(sentences, m.notKnown+" if it is not known.")
	}
	if m.access == "readwrite" {
		sentences = append(sentences, "Can be set.")
	}
	switch m.emitsChanged {
	case "const":
		sentences = append(sentences, "It never changes.")
	case "false":
		sentences = append(sentences, "Its changes are not announced.")
	case "invalidates":
		sentences = append(sentences, "Its changes are announced without the new value.")
	}
	return strings.Join(sentences, " ")
}

// sentence makes a comment a sentence: it adds a full stop, and a capital letter unless the comment
// begins with a name of the interface.
func sentence(text string) string {
	first, rest, _ := strings.Cut(text, " ")
	if rest != "" && first == strings.ToLower(first) && !strings.ContainsAny(first, ":,|(") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return strings.TrimSuffix(text, ".") + "."
}

// escape escapes the characters that have a meaning in Markdown.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`").Replace(text)
}

var errorList = regexp.MustCompile(`(?s)Error\.\*: (.*?);`)

// errorNames returns the names of the errors from the comment before the Manager's definition.
func errorNames(definition string) string {
	m := errorList.FindStringSubmatch(definition)
	if m == nil {
		return ""
	}
	return strings.Join(strings.Fields(m[1]), ", ")
}
