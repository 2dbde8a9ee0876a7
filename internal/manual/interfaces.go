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
	Kind, Name, Access string
	DBusType           string // type of a property
	In, Out            []string
	EmitsChanged       string // EmitsChangedSignal annotation of a property, "" for true
	NotKnown           string // the value of a number that is not known, "" if it is always known
	Comment            string
}

// iface is an interface of the contract.
type iface struct {
	Name    string
	Members []member
}

// kinds are the kinds of members, in the order of the documentation.
var kinds = []struct{ name, title string }{{"method", "Methods"}, {"signal", "Signals"}, {"property", "Properties"}}

// membersOf returns the members of one kind.
func (i iface) membersOf(kind string) []member {
	return slices.DeleteFunc(slices.Clone(i.Members), func(m member) bool { return m.Kind != kind })
}

// shortName returns the last component of the interface's name.
func (i iface) shortName() string { return i.Name[strings.LastIndexByte(i.Name, '.')+1:] }

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
			for _, counterpart := range []string{m.Name + "Session", m.Name} {
				if m.Kind == "method" && m.Comment == "" && documented[counterpart] {
					members[i].Comment = "As the Manager's " + counterpart + "."
				}
			}
			documented[m.Name] = documented[m.Name] || m.Comment != ""
		}
		all = append(all, iface{name, members})
	}
	return all, nil
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
					Kind:     t.Name.Local,
					Name:     attribute(t, "name"),
					Access:   attribute(t, "access"),
					DBusType: attribute(t, "type"),
					Comment:  strings.Join(comments, " "),
				})
				comments = nil
			case "arg":
				m := &members[len(members)-1]
				text := strings.TrimSpace(attribute(t, "type") + " " + attribute(t, "name"))
				if attribute(t, "direction") == "out" {
					m.Out = append(m.Out, text)
				} else {
					m.In = append(m.In, text)
				}
			case "annotation":
				m := &members[len(members)-1]
				switch attribute(t, "name") {
				case "org.freedesktop.DBus.Property.EmitsChangedSignal":
					m.EmitsChanged = attribute(t, "value")
				case "io.github.corrald.Corral1.NotKnown":
					m.NotKnown = attribute(t, "value")
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

// Meaning returns the description of the member in sentences.
func (m member) Meaning() string {
	var sentences []string
	if m.Comment != "" {
		sentences = append(sentences, m.Comment)
	}
	if m.NotKnown != "" {
		sentences = append(sentences, m.NotKnown+" if it is not known.")
	}
	if m.Access == "readwrite" {
		sentences = append(sentences, "Can be set.")
	}
	switch m.EmitsChanged {
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
