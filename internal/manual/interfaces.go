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

// member is a method, signal or property, with the comment that stands before it.
type member struct {
	kind, name, access string
	typed              string // of a property: its type
	in, out            []string
	announced          string // of a property: EmitsChangedSignal, "" for true
	comment            string
}

// contract is one interface.
type contract struct {
	name    string
	members []member
}

// kinds are the kinds of members, in the order in which they are described.
var kinds = []struct{ name, title string }{{"method", "Methods"}, {"signal", "Signals"}, {"property", "Properties"}}

// of returns the members of one kind.
func (c contract) of(kind string) []member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m member) bool { return m.kind != kind })
}

// short is the last word of the interface's name.
func (c contract) short() string { return c.name[strings.LastIndexByte(c.name, '.')+1:] }

// contracts reads the interface definitions. What a session's method says of itself can be that it
// is like the Manager's.
func contracts(definitions ...string) ([]contract, error) {
	var all []contract
	documented := map[string]bool{}
	for _, definition := range definitions {
		name, members, err := read(definition)
		if err != nil {
			return nil, err
		}
		for i, m := range members {
			for _, namesake := range []string{m.name + "Session", m.name} {
				if m.kind == "method" && m.comment == "" && documented[namesake] {
					members[i].comment = "As the Manager's " + namesake + "."
				}
			}
			documented[m.name] = documented[m.name] || m.comment != ""
		}
		all = append(all, contract{name, members})
	}
	return all, nil
}

// describe is what the interface definitions say, as sections of a manual page.
func describe(definitions ...string) (string, error) {
	all, err := contracts(definitions...)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	for _, c := range all {
		for _, kind := range kinds {
			var entries []string
			for _, m := range c.of(kind.name) {
				entries = append(entries, m.entry())
			}
			if len(entries) > 0 {
				fmt.Fprintf(&page, "# %s OF THE %s\n\n%s\n", strings.ToUpper(kind.title), strings.ToUpper(c.short()), strings.Join(entries, "\n"))
			}
		}
	}
	return page.String(), nil
}

// read reads a definition in the introspection format of the D-Bus specification.
func read(definition string) (name string, members []member, err error) {
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
					kind: t.Name.Local, name: attribute(t, "name"), access: attribute(t, "access"), typed: attribute(t, "type"),
					comment: strings.Join(comments, " "),
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
				if len(members) > 0 && strings.HasSuffix(attribute(t, "name"), ".EmitsChangedSignal") {
					members[len(members)-1].announced = attribute(t, "value")
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

// entry is a member as an entry of a definition list.
func (m member) entry() string {
	var term string
	switch {
	case m.kind == "property":
		term = fmt.Sprintf("**%s** %s", m.name, escape(m.typed))
	case len(m.out) > 0:
		term = fmt.Sprintf("**%s**(%s) -> %s", m.name, escape(strings.Join(m.in, ", ")), escape(strings.Join(m.out, ", ")))
	default:
		term = fmt.Sprintf("**%s**(%s)", m.name, escape(strings.Join(m.in, ", ")))
	}
	return fmt.Sprintf("%s\n:   %s\n", term, escape(m.meaning()))
}

// meaning describes a member in sentences.
func (m member) meaning() string {
	var sentences []string
	if m.comment != "" {
		sentences = append(sentences, m.comment)
	}
	if m.access == "readwrite" {
		sentences = append(sentences, "Can be set.")
	}
	switch m.announced {
	case "const":
		sentences = append(sentences, "It never changes.")
	case "false":
		sentences = append(sentences, "Its changes are not announced.")
	case "invalidates":
		sentences = append(sentences, "Its changes are announced without the new value.")
	}
	return strings.Join(sentences, " ")
}

// sentence begins with a capital, unless it begins with a word of the interface, and ends in a
// stop.
func sentence(text string) string {
	first, rest, _ := strings.Cut(text, " ")
	if rest != "" && first == strings.ToLower(first) && !strings.ContainsAny(first, ":,|(") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return strings.TrimSuffix(text, ".") + "."
}

// escape keeps Markdown from reading what is not Markdown.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`").Replace(text)
}

var ourErrors = regexp.MustCompile(`(?s)Error\.\*: (.*?);`)

// errorNames are the names of the errors, from the comment in front of the Manager's definition.
func errorNames(definition string) string {
	m := ourErrors.FindStringSubmatch(definition)
	if m == nil {
		return ""
	}
	return strings.Join(strings.Fields(m[1]), ", ")
}
