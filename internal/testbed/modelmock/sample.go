package modelmock

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// schema is as much of a JSON schema as agents use. Gemini writes its types in capitals.
type schema struct {
	Type       any               `json:"type"` // a name, or a list of names
	Enum       []json.RawMessage `json:"enum"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
}

// sample is a value that a schema accepts: of an object what it requires. With a command it is what
// a tool is called with to run that.
func sample(of json.RawMessage, command *string) json.RawMessage {
	var s schema
	if json.Unmarshal(of, &s) != nil {
		return json.RawMessage("{}")
	}
	value := s.sample()
	fields, isObject := value.(map[string]any)
	if command != nil && isObject {
		if _, ok := s.Properties["sandbox_permissions"]; ok { // Codex asks a person about what is to run outside of its sandbox, and nothing else
			fields["sandbox_permissions"], fields["justification"] = "require_escalated", "May I run this?"
		}
		for _, name := range []string{"command", "cmd"} {
			if p, ok := s.Properties[name]; ok && p.kind() == "array" {
				fields[name] = []string{"sh", "-c", *command}
			} else if ok {
				fields[name] = *command
			}
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // made of maps, lists, texts and numbers
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

// kind is the name of the schema's type in small letters, the first that it has.
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
