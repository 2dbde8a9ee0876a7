// Package store keeps the sessions on disk. Each session has a directory of its own with one small
// JSON record, so that damage is confined to one session.
//
// A record is an envelope around the session: schema, writer, checksum. It is replaced atomically
// and durably, and the previous record stays beside it. Fields that this version does not know are
// kept unchanged. A record of a newer schema is read-only.
package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor/session"
)

// Schema is the newest version of the record that this program reads and writes. A record that
// older versions can use is written with the schema that they know.
const Schema = 2

// schemaOf returns the schema of a record: older versions must not run an agent without its
// sandbox.
func schemaOf(rec *session.Session) int {
	if rec.Sandbox != "" {
		return 2
	}
	return 1
}

// The files that the store uses: two in the directory of each session, and the lock file of the
// state directory.
const (
	RecordName   = "session.json"
	previousName = "session.json.prev"
	lockName     = "lock"
)

// maxRecord is the maximum size of a record, in bytes. The commands, the environment and the
// prompt of a session have at most 4 MiB, which JSON encodes in at most six times as many bytes.
const maxRecord = 32 << 20

// Store is the state directory, which this process has locked.
type Store struct {
	dir      string // $XDG_STATE_HOME/corral
	disk     disk
	lock     *os.File
	readOnly map[string]bool   // by id: the record was written by a newer version, and must not be replaced
	extras   map[string]extras // by id
}

// ErrLocked is returned by Open when another process holds the state directory.
var ErrLocked = errors.New("another corrald is running")

// Open creates the state directory dir if it does not exist, makes it private to the user, and
// locks it until Close is called or the process ends. It returns ErrLocked if another process has
// locked it.
func Open(dir string) (*Store, error) {
	_, err := os.Lstat(filepath.Join(dir, "sessions"))
	missing := err != nil
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the state directory: %w", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "sessions")} {
		if info, err := os.Stat(d); err == nil && info.Mode().Perm() == 0o700 {
			continue
		}
		if err := os.Chmod(d, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the state directory private: %w", err)
		}
	}
	if missing { // errors are ignored: the user may not be able to open a parent directory
		_, _ = atomicfile.Sync(filepath.Join(dir, "sessions")), atomicfile.Sync(dir)
	}
	lock, err := openLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %q: %w", dir, ErrLocked)
		}
		return nil, fmt.Errorf("cannot lock %q: %w", dir, err)
	}
	s := newStore(realDisk{}, dir)
	s.lock = lock
	return s, nil
}

// openLock opens the lock file. If something other than a regular file has its name, this is
// renamed like a damaged record: it must not prevent the supervision of all sessions.
func openLock(path string) (*os.File, error) {
	lock, err := safefile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, safefile.ErrNotRegular) {
		if _, aside := atomicfile.SetAside(path); aside == nil {
			lock, err = safefile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	// Sessions can be supervised even if the state directory is not writable.
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		return safefile.Open(path)
	}
	return lock, err
}

func newStore(d disk, dir string) *Store {
	return &Store{dir: dir, disk: d, readOnly: map[string]bool{}, extras: map[string]extras{}}
}

// Close releases the lock.
func (s *Store) Close() error { return s.lock.Close() }

// SessionDir returns the path of a session's directory, which also contains its log and
// exit_status.
func (s *Store) SessionDir(id string) string { return filepath.Join(s.dir, "sessions", id) }

// Create creates the directory of a new session. It fails if the directory exists.
func (s *Store) Create(id string) error {
	if err := s.disk.Mkdir(s.SessionDir(id), 0o700); err != nil {
		return fmt.Errorf("cannot create session %q: %w", id, err)
	}
	failpoint.Hit("create.directory-made")
	return nil
}

// ErrNewer is returned by Save if the session's record was written by a newer version of Corral:
// this version must not replace it.
var ErrNewer = errors.New("the record was written by a newer version of Corral")

// Save replaces the session's record, durably. Calls for different sessions may run concurrently,
// but not while Load runs. Writer is the version of Corral, which the record names.
func (s *Store) Save(rec *session.Session, writer string) error {
	if s.readOnly[rec.ID] {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, ErrNewer)
	}
	failpoint.Hit("save.before")
	data, err := encode(rec, s.extras[rec.ID], writer)
	if err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	err = s.write(s.SessionDir(rec.ID), data)
	if errors.Is(err, fs.ErrNotExist) && s.recreateDirectory(rec.ID) == nil {
		err = s.write(s.SessionDir(rec.ID), data)
	}
	if err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	failpoint.Hit("save.after")
	return nil
}

// write replaces the record in the session's directory and keeps the old one as the previous
// record.
func (s *Store) write(dir string, data []byte) error {
	record, previous := filepath.Join(dir, RecordName), filepath.Join(dir, previousName)
	first, err := s.linkPrevious(record, previous)
	if err != nil {
		return err
	}
	failpoint.Hit("save.kept")
	if err = (atomicfile.Disk{Calls: s.disk}).Write(record, data, 0o600); err == nil && first {
		err = s.syncSessionNames() // the session's directory has to be as durable as its record
	}
	return err
}

// recreateDirectory creates the directory of a session, and its parent directories, after somebody
// has removed them: each session that is supervised has to be on disk.
func (s *Store) recreateDirectory(id string) (err error) {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "sessions"), s.SessionDir(id)} {
		if err = s.disk.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// linkPrevious makes the current record the previous one as well, by a hard link, before the
// current one is replaced: at any moment at least one of them is complete. If there is no current
// record, because there never was one or it was set aside as damaged, the previous record is kept;
// first is true then.
func (s *Store) linkPrevious(record, previous string) (first bool, err error) {
	link := previous + ".new"
	_ = s.disk.Unlink(link)
	renaming := atomicfile.Disk{Calls: s.disk}
	err = s.disk.Link(record, link)
	if errors.Is(err, fs.ErrExist) { // a directory has that name
		if _, err = renaming.SetAside(link); err == nil {
			err = s.disk.Link(record, link)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, fs.ErrPermission) { // it is a directory, which is set aside when the new record is written
		return false, nil
	}
	failpoint.Hit("save.linked")
	if err == nil {
		err = renaming.Rename(link, previous)
	}
	_ = s.disk.Unlink(link) // rename(2) does nothing if both are names of the same inode
	return false, err
}

// syncSessionNames makes the list of sessions durable.
func (s *Store) syncSessionNames() error { return s.sync(filepath.Join(s.dir, "sessions")) }

func (s *Store) sync(dir string) error {
	fd, err := s.disk.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = s.disk.Fsync(fd)
		_ = s.disk.Close(fd)
	}
	if err != nil {
		return &fs.PathError{Op: "fsync", Path: dir, Err: err}
	}
	return nil
}

// SyncExit makes the session's exit_status durable. Changes that follow from it alone need not be
// saved in the session's record.
func (s *Store) SyncExit(id string) error {
	if err := (atomicfile.Disk{Calls: s.disk}).Sync(filepath.Join(s.SessionDir(id), exitstatus.FileName)); err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// KeepExit writes the session's exit_status, durably, for a shim that could not.
func (s *Store) KeepExit(id string, status exitstatus.Status) error {
	if err := exitstatus.Write(s.SessionDir(id), status); err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// Remove deletes a session with its log. It first renames the directory, atomically and durably, so
// that after a power cut the session is either complete or gone. Then it deletes the directory.
func (s *Store) Remove(id string) error {
	renamed := filepath.Join(s.dir, "sessions", "."+id+removedSuffix)
	if s.disk.Exists(renamed) {
		s.removeRest(renamed)
	}
	if err := s.disk.Rename(s.SessionDir(id), renamed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove session %q: %w", id, err)
	}
	failpoint.Hit("remove.record-gone")
	// If the rename cannot be made durable, the next Load deletes the directory, provided that the
	// new name has reached the disk.
	if s.syncSessionNames() == nil {
		_ = s.disk.RemoveAll(renamed)
	}
	delete(s.readOnly, id)
	delete(s.extras, id)
	return nil
}

// removeRest deletes the renamed directory of a session whose removal was interrupted by a power
// cut. On a file system without a journal, the directory may then have both its old and its new
// name. Therefore the previous record is deleted first, durably, so that after another power cut
// the session is still either complete or gone.
func (s *Store) removeRest(renamed string) {
	for _, name := range []string{previousName, RecordName} {
		if s.disk.Unlink(filepath.Join(renamed, name)) == nil && s.sync(renamed) != nil {
			return
		}
	}
	_ = s.disk.RemoveAll(renamed)
}

// removedSuffix ends the name of a directory that is being removed. That name begins with a dot,
// which no id does.
const removedSuffix = ".removed"

// envelope is the content of a record file: the session and facts about the record itself.
type envelope struct {
	Schema   int             `json:"schema"`
	Writer   string          `json:"writer"`   // the version of Corral that wrote it
	Checksum string          `json:"checksum"` // of Session in compact form; "" if a person deleted it
	Session  json.RawMessage `json:"session"`
}

func encode(rec *session.Session, more extras, writer string) ([]byte, error) {
	body, err := json.Marshal(rec)
	if err == nil {
		body, err = more.addTo(body)
	}
	if err != nil {
		return nil, err
	}
	data := body
	if len(body) < maxRecord {
		data, err = json.MarshalIndent(envelope{schemaOf(rec), writer, checksum(body), body}, "", " ")
	}
	if len(data) >= maxRecord {
		return nil, fmt.Errorf("its record would have %d bytes, more than will be read", len(data))
	}
	return append(data, '\n'), err
}

func decode(data []byte) (*session.Session, envelope, extras, error) {
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return nil, env, extras{}, err
	}
	var body bytes.Buffer
	if err := json.Compact(&body, env.Session); err != nil {
		return nil, env, extras{}, err
	}
	// A person who edits a record deletes its checksum. One that does not match is treated as damage,
	// because damage cannot be distinguished from an editing mistake.
	if env.Checksum != "" && env.Checksum != checksum(body.Bytes()) {
		return nil, env, extras{}, errChecksum
	}
	rec := new(session.Session)
	hasExtras := !decodeKnown(body.Bytes(), rec)
	if hasExtras { // or is damaged
		rec = new(session.Session)
		if err := json.Unmarshal(body.Bytes(), rec); err != nil {
			return nil, env, extras{}, err
		}
	}
	if env.Checksum == "" && !isComplete(rec) {
		return nil, env, extras{}, errors.New("it has no checksum and is not the record of a session")
	}
	if !hasExtras {
		return rec, env, extras{}, nil
	}
	more, err := extrasOf(body.Bytes())
	return rec, env, more, err
}

// decodeKnown decodes a session in JSON, and reports whether this version knows all of its fields.
// Most records are read only once then: the search for unknown fields takes longer than decoding.
func decodeKnown(body []byte, rec *session.Session) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(rec) == nil
}

var errChecksum = errors.New("the checksum does not match")

// isComplete reports whether a record that somebody has edited contains what every session has.
func isComplete(rec *session.Session) bool {
	return rec.Agent != "" && filepath.IsAbs(rec.WorkingDirectory) && !rec.Created.IsZero() &&
		(len(rec.Command) > 0 && rec.Command[0] != "") && (rec.Run == nil || rec.Run.ID != "" && rec.Run.Unit != "")
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
