package top

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// settings are what top remembers about its view from one time to the next.
type settings struct {
	Columns []string `json:"columns,omitempty"` // names of those shown; none: the usual ones
	Group   string   `json:"group,omitempty"`   // "", "workspace" or "label:KEY"
	Preview int      `json:"preview,omitempty"` // its share of the screen in percent, 0 for the usual
	Hidden  bool     `json:"previewHidden,omitempty"`
	NoMouse bool     `json:"noMouse,omitempty"`
}

// The share of the body that the preview has, in percent.
const (
	usualShare = 50
	leastShare = 20
	mostShare  = 90
	shareStep  = 10
)

const maxSettings = 64 << 10 // bytes of the file

// loadSettings reads the settings. A file that is missing or damaged means the usual ones; so does
// each value in it that is not valid.
func loadSettings(path string) settings {
	var s settings
	content, err := safefile.Read(path, maxSettings)
	if path == "" || err != nil || json.Unmarshal(content, &s) != nil {
		return settings{}
	}
	s.Columns = slices.DeleteFunc(s.Columns, func(name string) bool { return columnNamed(name) == nil })
	if s.Preview != 0 {
		s.Preview = max(leastShare, min(s.Preview, mostShare))
	}
	return s
}

// saveSettings replaces the file.
func saveSettings(path string, s settings) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(content, '\n'), 0o600)
}

// share is the preview's share of the body in percent.
func (s settings) share() int {
	if s.Preview == 0 {
		return usualShare
	}
	return s.Preview
}

// remember stores the settings.
func (m *model) remember() []effect { return []effect{save{m.view}} }

// labelGroup is the prefix of a grouping by a label.
const labelGroup = "label:"

// nextGroup selects the next grouping: none, by workspace, by each label that a session has.
func (m *model) nextGroup() []effect {
	keys := map[string]bool{}
	for _, r := range m.rows {
		for key := range r.Labels {
			keys[labelGroup+key] = true
		}
	}
	groups := append([]string{"", "workspace"}, slices.Sorted(maps.Keys(keys))...)
	m.view.Group = groups[(slices.Index(groups, m.view.Group)+1)%len(groups)]
	m.arrange()
	if m.view.Group == "" {
		m.say("Not grouped.")
	} else {
		m.say("Grouped by " + groupTitle(m.view.Group) + ".")
	}
	return m.remember()
}

func groupTitle(group string) string {
	if key, ok := cutLabel(group); ok {
		return "label " + key
	}
	return group
}
