package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// Kind is what Load found wrong or unusual about a session's record.
type Kind int

const (
	SetAside Kind = iota // it was damaged and renamed, or is missing; the previous record is used
	Lost                 // the same, but there is no usable previous record: the session is missing
	Newer                // it was written by a newer version, and is read-only
	Edited               // a person has edited it, and it is used; the next save adds a checksum
)

// Finding describes something about a session's record that a person should know.
type Finding struct {
	ID     string
	Kind   Kind
	Path   string // SetAside, Lost: of the damaged record; "" if the record was missing
	Writer string // Newer: the version of Corral that wrote the record
	Err    error  // SetAside, Lost: what is wrong with the record; nil if an earlier Load set it aside
}

// String describes the finding, and what to do about it, in one English sentence.
func (f Finding) String() string {
	switch f.Kind {
	case SetAside:
		if f.Path == "" {
			return "its record was missing; the previous one is used"
		}
		return "its record was damaged" + because(f.Err) + "; the previous one is used: look at " + f.Path +
			", then remove that file"
	case Lost:
		return "its record is damaged" + because(f.Err) + ", and there is no previous one: fix " + f.Path +
			" and rename it to " + RecordName + " while corrald is stopped, or remove its directory"
	case Newer:
		return "its record was written by a newer Corral (" + f.Writer +
			"): it is read-only; install that version, or remove the session"
	}
	return "its record was edited by hand and is used as it is"
}

func because(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errChecksum):
		return " (its checksum does not match; if you have edited it, delete the line of the checksum)"
	}
	return " (" + err.Error() + ")"
}

// Load reads all sessions. A record that cannot be read is renamed to session.json.damaged, and the
// previous one is used. If there is no usable previous one either, the session is missing from the
// result, and its directory is kept.
func (s *Store) Load() ([]*session.Session, []Finding, error) {
	dir := filepath.Join(s.dir, "sessions")
	names, err := s.disk.Directories(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the sessions: %w", err)
	}
	// Removals are completed first: after a power cut, a directory may have both its old and its new
	// name.
	for _, name := range names {
		if strings.HasPrefix(name, ".") && strings.HasSuffix(name, removedSuffix) {
			s.removeRest(filepath.Join(dir, name))
		}
	}
	var all []*session.Session
	var found []Finding
	shared := sharedStrings{}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		rec, more := s.load(name)
		if rec != nil {
			shared.apply(rec)
			all = append(all, rec)
		}
		found = append(found, more...)
	}
	return all, found, nil
}

func (s *Store) load(id string) (*session.Session, []Finding) {
	record := filepath.Join(s.SessionDir(id), RecordName)
	aside := record + atomicfile.AsideSuffix
	rec, found, err := s.read(record, id)
	if err == nil {
		if s.disk.Exists(aside) {
			found = append(found, Finding{ID: id, Kind: SetAside, Path: aside})
		}
		return rec, found
	}
	missing := errors.Is(err, fs.ErrNotExist)
	rec, found, prevErr := s.read(filepath.Join(s.SessionDir(id), previousName), id)
	if missing && errors.Is(prevErr, fs.ErrNotExist) && !s.disk.Exists(aside) {
		s.removeUnfinished(id)
		return nil, nil
	}
	f := Finding{ID: id, Kind: SetAside, Path: aside, Err: err}
	if missing {
		f.Err = nil
		if !s.disk.Exists(aside) {
			f.Path = ""
		}
	} else if f.Path, err = (atomicfile.Disk{Calls: s.disk}).SetAside(record); err != nil {
		f.Path = record
	}
	if prevErr != nil {
		f.Kind = Lost
	}
	return rec, append(found, f)
}

// removeUnfinished deletes the directory of a session whose creation was interrupted, so that the
// id can be used again. The directory is kept if a shim has prepared an exit_status in it: then the
// session runs, and only its record could not be saved.
func (s *Store) removeUnfinished(id string) {
	dir := s.SessionDir(id)
	if !s.disk.Exists(filepath.Join(dir, "."+exitstatus.FileName+".new")) {
		_ = s.disk.RemoveAll(dir)
	}
}

func (s *Store) read(path, id string) (*session.Session, []Finding, error) {
	data, err := s.disk.Read(path, maxRecord)
	if err != nil {
		return nil, nil, err
	}
	rec, env, more, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	if rec.ID != id {
		return nil, nil, fmt.Errorf("it is the record of session %q", rec.ID)
	}
	var found []Finding
	if env.Schema > Schema {
		found = append(found, Finding{ID: id, Kind: Newer, Writer: env.Writer})
	}
	if env.Checksum == "" {
		found = append(found, Finding{ID: id, Kind: Edited})
	}
	if env.Schema > Schema {
		s.readOnly[id] = true
	}
	if len(more.session)+len(more.runs) > 0 {
		s.extras[id] = more
	}
	return rec, found, nil
}

// Read reads the sessions in the state directory dir without a lock and without changing anything,
// for a client that finds no daemon. Records that cannot be read are skipped.
func Read(dir string) ([]*session.Session, error) {
	s := newStore(realDisk{}, dir)
	names, err := s.disk.Directories(filepath.Join(dir, "sessions"))
	if err != nil {
		return nil, err
	}
	var all []*session.Session
	for _, id := range names {
		if rec, _, err := s.read(filepath.Join(s.SessionDir(id), RecordName), id); err == nil {
			all = append(all, rec)
		}
	}
	return all, nil
}
