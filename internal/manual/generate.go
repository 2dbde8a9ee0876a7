package main

import (
	"os"
	"path/filepath"
)

// The interface definitions. They are read as files, since package dbusapi, which embeds them, does
// not compile without its generated types.
var definitionFiles = []string{
	"dbusapi/io.github.corrald.Corral1.Manager.xml", "dbusapi/io.github.corrald.Corral1.Session.xml",
}

// jsonPage is the page whose tables of properties are generated.
const jsonPage = "docs/reference/json.md"

// contract is the content of the interface definitions.
type contract struct {
	interfaces       []iface
	manager, session []member // properties
	Errors           string   // the names of the errors, separated by commas
}

// readContract reads the interface definitions of a repository.
func readContract(repository string) (contract, error) {
	definitions, err := readFiles(repository, definitionFiles...)
	if err != nil {
		return contract{}, err
	}
	all, err := readInterfaces(definitions...)
	if err != nil {
		return contract{}, err
	}
	return contract{all, all[0].membersOf("property"), all[1].membersOf("property"), errorNames(definitions[0])}, nil
}

// generated returns the texts of the files that are generated, by their paths in the repository.
func (c contract) generated(repository string) (map[string]string, error) {
	page, err := readFiles(repository, jsonPage)
	if err != nil {
		return nil, err
	}
	tables, err := c.describeJSON(page[0])
	if err != nil {
		return nil, err
	}
	types, err := c.types()
	if err != nil {
		return nil, err
	}
	reference, err := render("reference.md.tmpl", c)
	if err != nil {
		return nil, err
	}
	schema, err := c.jsonSchema()
	return map[string]string{
		"dbusapi/properties_generated.go": types,
		"docs/reference/dbus.md":          reference,
		jsonPage:                          tables,
		"docs/reference/json.schema.json": schema,
	}, err
}

// generate writes the files that are generated from the interface definitions.
func generate(repository string) error {
	c, err := readContract(repository)
	if err != nil {
		return err
	}
	files, err := c.generated(repository)
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(repository, name), []byte(text), 0o644) //nolint:gosec // readable by all users
		}
	}
	return err
}

func readFiles(repository string, names ...string) (texts []string, err error) {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}
