package supervisor

import (
	"slices"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// own returns the spec with texts of its own. Those that come over D-Bus are pieces of a buffer of 4 KiB, all of which lives for as long as one of them
// does: see stringConverter in godbus.
func (spec Spec) own() Spec {
	for _, text := range []*string{&spec.ID, &spec.Description, &spec.WorkingDirectory, &spec.Prompt, &spec.OnLogin, &spec.ConversationID} {
		*text = strings.Clone(*text)
	}
	for _, list := range []*[]string{&spec.Command, &spec.Arguments, &spec.Environment, &spec.CallerEnvironment} {
		*list = ownTexts(*list)
	}
	labels := make(map[string]string, len(spec.Labels))
	for name, value := range spec.Labels {
		labels[strings.Clone(name)] = strings.Clone(value)
	}
	if spec.Labels = nil; len(labels) > 0 {
		spec.Labels = labels
	}
	spec.UnitProperties = slices.Clone(spec.UnitProperties)
	for i, p := range spec.UnitProperties {
		spec.UnitProperties[i] = session.Property{Name: strings.Clone(p.Name), Signature: strings.Clone(p.Signature), Value: strings.Clone(p.Value)}
	}
	return spec
}

func ownTexts(texts []string) []string {
	own := slices.Clone(texts)
	for i, text := range own {
		own[i] = strings.Clone(text)
	}
	return own
}
