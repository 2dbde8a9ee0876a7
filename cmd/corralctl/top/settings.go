package top

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// settings are the settings of the view, which are kept in a file.
type settings struct {
	Columns []string `json:"columns,omitempty"` // names of the shown columns, none for the default
	Group   string   `json:"group,omitempty"`   // "", "workspace" or "label:KEY"
	Preview int      `json:"preview,omitempty"` // share of the body in percent, 0 for the default
	Hidden  bool     `json:"previewHidden,omitempty"`
	NoMouse bool     `json:"noMouse,omitempty"`
}

// Bounds for the share of the body that the preview takes, in percent.
const (
	defaultShare = 50
	minShare     = 20
	maxShare     = 90
	shareStep    = 10
)

// maxSettings bounds the size of the file, in bytes.
const maxSettings = 64 << 10

// loadSettings reads the settings from a file. Defaults replace a missing or damaged file, and each
// invalid value in it.
func loadSettings(path string) settings {
	var s settings
	content, err := safefile.Read(path, maxSettings)
	if path == "" || err != nil || json.Unmarshal(content, &s) != nil {
		return settings{}
	}
	s.Columns = slices.DeleteFunc(s.Columns, func(name string) bool { return columnIndex(name) < 0 })
	if s.Preview != 0 {
		s.Preview = max(minShare, min(s.Preview, maxShare))
	}
	return s
}

// saveSettings replaces the file; it does nothing if path is "".
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

// previewShare returns the share of the body that the preview takes, in percent.
func (s settings) previewShare() int {
	if s.Preview == 0 {
		return defaultShare
	}
	return s.Preview
}

// toggled returns the names of the shown columns, with this one added or removed. The id cannot be
// removed.
func (s settings) toggled(name string) []string {
	var shown []string
	for _, c := range columns {
		if c.name == "id" || s.isShown(c) != (c.name == name) {
			shown = append(shown, c.name)
		}
	}
	return shown
}

// saveSettings returns the effect that saves the settings.
func (m *model) saveSettings() []effect { return []effect{save{m.settings}} }
