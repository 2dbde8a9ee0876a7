// Package hookreport has the file in which a hook of an agent leaves its report if no daemon
// answers: the daemon reads it later. It is in the session's runtime directory, and has the last
// report only.
//
// Any process of the user can write such a file, as it can report over the bus from inside of a
// session (see SECURITY.md).
package hookreport

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// FileName is the name of the file in a session's runtime directory.
const FileName = shimwire.ReportName

// maxSize is the limit of the file's size in bytes. A message has at most 4 KiB, which JSON may
// write as six times as many.
const maxSize = 64 << 10

// Report is what a hook has reported.
type Report struct {
	Activity       string        `json:"activity"`
	Reason         string        `json:"reason,omitempty"`
	Message        string        `json:"message,omitempty"`
	ConversationID string        `json:"conversation_id,omitempty"`
	Until          time.Time     `json:"until,omitzero"`
	At             time.Time     `json:"at"`
	Monotonic      time.Duration `json:"monotonic"` // At by CLOCK_MONOTONIC, in nanoseconds
}

// Write replaces the file in a directory, which has to exist. It does not wait for the disk: a
// runtime directory does not survive a power cut.
func Write(dir string, r Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "."+FileName+"-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, FileName))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// takenName is the name of the file once its report was taken, and not recorded yet.
const takenName = "." + FileName + "-taken"

// Take returns the report in a directory, so that a later one can be left meanwhile. It returns
// false if there is none. Take returns the same report again until Remove is called. An unreadable
// file is removed.
func Take(dir string) (r Report, ok bool, err error) {
	path, taken := filepath.Join(dir, FileName), filepath.Join(dir, takenName)
	if err := os.Rename(path, taken); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.RemoveAll(path) // a directory
		return Report{}, false, err
	}
	text, err := safefile.Read(taken, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		Remove(dir)
	}
	return r, err == nil, err
}

// Remove removes the report that Take has returned, which was recorded.
func Remove(dir string) { _ = os.RemoveAll(filepath.Join(dir, takenName)) }
