package environments

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/safefile"
)

// Origins records from which source each variable of a session's last run comes: the names, and the
// value of PATH. It is only printed for people; nothing else depends on it.
type Origins struct {
	Run       string              `json:"run"`
	Path      string              `json:"path"` // the run's PATH
	Variables map[string][]string `json:"variables"`
	// Missing are the names that an earlier run had from the same origin, and that this run does not
	// have at all.
	Missing map[string][]string `json:"missing,omitempty"`
}

// originsFile is the name of the record in a session's directory.
const originsFile = "environment"

// maxOrigins limits how much of the record is read, in bytes. It contains only names, of fewer
// variables than an environment can have.
const maxOrigins = 16 << 20

// maxMissing bounds how many names of earlier runs are recorded.
const maxMissing = 1000

// ReadOrigins reads the record in a session's directory. It is zero if there is none, or if it is
// damaged: it has to be compared with the run that it is expected of. An error means that the file
// cannot be read. ReadOrigins may be called on any goroutine except the event loop.
func ReadOrigins(dir string) (Origins, error) {
	data, err := safefile.Read(filepath.Join(dir, originsFile), maxOrigins)
	if errors.Is(err, fs.ErrNotExist) {
		return Origins{}, nil
	}
	var o Origins
	if err != nil || json.Unmarshal(data, &o) != nil {
		return Origins{}, err
	}
	return o, nil
}

// WriteOrigins replaces the record in a session's directory by that of a run with these variables.
// A record that cannot be read is replaced, too. The file is not synced: after a power cut, the
// record of the next run replaces it. The calls for one session must not overlap.
func WriteOrigins(dir, run string, variables []environment.Variable) error {
	before, _ := ReadOrigins(dir)
	data, err := json.Marshal(newOrigins(before, run, variables))
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(dir, originsFile, 0o600)
	if err != nil {
		return err
	}
	defer f.Abort()
	return f.Replace(data)
}

// newOrigins returns the record of a run that follows the one that before describes.
func newOrigins(before Origins, run string, variables []environment.Variable) Origins {
	o := Origins{Run: run, Variables: map[string][]string{}}
	has := map[string]bool{}
	for _, v := range variables {
		o.Variables[v.Source] = append(o.Variables[v.Source], v.Name)
		if has[v.Name] = true; v.Name == "PATH" {
			o.Path = v.Value
		}
	}
	for _, names := range o.Variables {
		slices.Sort(names)
	}
	o.Missing = missing(before, has)
	return o
}

// missing returns the names that a run does not have and that the previous one had, or lacked as
// well, by source.
func missing(before Origins, has map[string]bool) map[string][]string {
	names := map[string][]string{}
	n := 0
	for _, had := range []map[string][]string{before.Variables, before.Missing} {
		for _, source := range slices.Sorted(maps.Keys(had)) {
			for _, name := range had[source] {
				if !has[name] && n < maxMissing {
					names[source] = append(names[source], name)
					n++
				}
			}
		}
	}
	return names
}
