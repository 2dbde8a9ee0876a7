package main

import (
	"fmt"
	"go/format"
	"strings"
)

// goTypeOf maps the D-Bus types of properties to Go types of package dbusapi.
var goTypeOf = map[string]string{
	"s": "string", "b": "bool", "i": "int32", "u": "uint32", "t": "uint64", "as": "[]string", "aq": "[]uint16",
	"a{ss}":      "map[string]string",
	"a(sttsiis)": "[]RunRow", "a(sv)": "[]UnitProperty", "a(ss)": "[]Problem", "a(sso)": "[]AttentionRow",
}

func goType(p member) (string, error) {
	if name, ok := goTypeOf[p.DBusType]; ok {
		return name, nil
	}
	return "", fmt.Errorf("there is no Go type for %q, the type of %s", p.DBusType, p.Name)
}

// types returns Go source with a struct for the properties of each interface, and a table of
// these properties.
func (c contract) types() (string, error) {
	code, err := render("properties.go.tmpl", []struct {
		Name, Of   string
		Properties []member
	}{{"Manager", "the daemon", c.manager}, {"Session", "one session", c.session}})
	if err != nil {
		return "", err
	}
	source, err := format.Source([]byte(code))
	if err != nil {
		return "", fmt.Errorf("cannot format the generated types: %w", err)
	}
	return string(source), nil
}

// jsonTag returns the tag of a property with this D-Bus type. Lists of structures are in JSON only
// if they were read, and variants have no form there.
func jsonTag(dbusType string) string {
	switch {
	case strings.Contains(dbusType, "v"):
		return "`json:\"-\"`"
	case dbusType == "a(sttsiis)":
		return "`json:\",omitempty\"`"
	}
	return ""
}

// comment returns the text as a comment with this indentation, wrapped at 100 columns. A tab has 4.
func comment(indentation, text string) string {
	begin := indentation + "// "
	var code strings.Builder
	column := 101
	for _, word := range strings.Fields(text) {
		if column += 1 + len(word); column > 100 {
			code.WriteString("\n" + begin + word)
			column = 4*len(indentation) + len("// ") + len(word)
		} else {
			code.WriteString(" " + word)
		}
	}
	return strings.TrimPrefix(code.String(), "\n")
}
