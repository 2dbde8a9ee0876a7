package main

import (
	"embed"
	"strings"
	"text/template"
)

//go:embed *.tmpl
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"announced":   func(m member) string { return announcements[m.EmitsChanged].text },
	"cell":        tableCell,
	"comment":     comment,
	"escape":      escape,
	"goAnnounced": func(m member) string { return announcements[m.EmitsChanged].constant },
	"goType":      goType,
	"jsonTag":     jsonTag,
	"list":        func(arguments []string) string { return escape(strings.Join(arguments, ", ")) },
	"upper":       strings.ToUpper,
}).ParseFS(templateFiles, "*.tmpl"))

// announcements maps the values of EmitsChangedSignal to constants of package dbusapi and to words.
var announcements = map[string]struct{ constant, text string }{
	"":            {"AnnouncedWithValue", "with its value"},
	"invalidates": {"AnnouncedWithoutValue", "without its value"},
	"false":       {"NotAnnounced", "no"},
	"const":       {"NeverChanges", "never changes"},
}

// section documents the members of one kind of an interface.
type section struct {
	Title, Interface string
	Members          []member
}

// Sections returns the documentation of the interfaces, in order.
func (c contract) Sections() (all []section) {
	for _, i := range c.interfaces {
		for _, kind := range kinds {
			if members := i.membersOf(kind.name); len(members) > 0 {
				all = append(all, section{kind.title, i.shortName(), members})
			}
		}
	}
	return all
}

// render fills in a template: page.md.tmpl with the documentation of the interfaces for a manual
// page, reference.md.tmpl with that for docs/reference/dbus.md, or properties.go.tmpl.
func render(name string, data any) (string, error) {
	var text strings.Builder
	err := templates.ExecuteTemplate(&text, name, data)
	return text.String(), err
}

// tableCell escapes the characters that have a meaning in a table in Markdown.
func tableCell(text string) string { return strings.ReplaceAll(escape(text), "|", `\|`) }
