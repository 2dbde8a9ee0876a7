package modelmock

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// schema is the part of a JSON schema that agents use. Gemini writes types in capitals.
type schema struct {
	Type       any               `json:"type"` // a name, or a list of names
	Enum       []json.RawMessage `json:"enum"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
}

// sample returns a value that a schema accepts, with only the required fields of an object. If
// command is not nil, it returns the arguments with which a tool runs that command.
func sample(of json.RawMessage, command *string) json.RawMessage {
	var s schema
	if json.Unmarshal(of, &s) != nil {
		return json.RawMessage("{}")
	}
	value := s.sample()
	fields, isObject := value.(map[string]any)
	if command != nil && isObject {
		// Codex asks for permission only to run a command outside of its sandbox.
		if _, ok := s.Properties["sandbox_permissions"]; ok {
			fields["sandbox_permissions"], fields["justification"] = "require_escalated", "May I run this?"
		}
		for _, name := range []string{"command", "cmd"} {
			if p, ok := s.Properties[name]; ok && p.kind() == "array" {
				fields[name] = []string{"sh", "-c", *command}
			} else if ok {
				fields[name] = *command
			}
		}
		if _, ok := s.Properties["commands"]; ok { // of Cline, which runs several
			fields["commands"] = []string{*command}
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it consists of maps, lists, strings and numbers
	}
	return text
}

func (s schema) sample() any {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	switch s.kind() {
	case "string":
		return "A title"
	case "number", "integer":
		return 1
	case "boolean":
		return false
	case "array":
		return []any{}
	}
	fields := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, name) {
			fields[name] = s.Properties[name].sample()
		}
	}
	return fields
}

// kind returns the first type of the schema in lower case.
func (s schema) kind() string {
	if names, ok := s.Type.([]any); ok && len(names) > 0 {
		s.Type = names[0]
	}
	name, _ := s.Type.(string)
	for _, known := range []string{"string", "number", "integer", "boolean", "array"} {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return "object"
}
