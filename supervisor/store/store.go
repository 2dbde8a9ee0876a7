// Package store keeps the sessions on disk: one directory and one small JSON record for each, so that damage stays with one.
//
// A record is an envelope around the session: schema, writer, checksum. It is replaced atomically and durably, and the record before it stays
// beside it. What this version does not know is kept as it was. A record of a newer schema is shown, never written.
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

// Schema is the version of the record that this program writes.
const Schema = 1

// The files of a session's directory that the store knows, and the lock of the whole state directory.
const (
	RecordName   = "session.json"
	previousName = "session.json.prev"
	lockName     = "lock"
)

// maxRecord bounds a record, in bytes: a session has 4 MiB of commands, environment and prompt at the most, of which JSON may make six times as much.
const maxRecord = 32 << 20

// Store is the state directory, held by this process alone.
type Store struct {
	dir    string // $XDG_STATE_HOME/corral
	disk   disk
	lock   *os.File
	frozen map[string]bool // sessions whose record is newer than this program: read, never written
	seen   map[string]extras
}

// ErrLocked is returned by Open when another process holds the state directory.
var ErrLocked = errors.New("another corrald is running")

// Open makes the state directory dir if it is not there, private to the user, and locks it for the life of the process.
func Open(dir string) (*Store, error) {
	_, err := os.Lstat(filepath.Join(dir, "sessions"))
	made := err != nil
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
	if made { // as far as this user may open what is above
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
	s := on(realDisk{}, dir)
	s.lock = lock
	return s, nil
}

// openLock opens the file that is locked. What is no file is set aside, as a damaged record is: it must not keep all sessions from being supervised.
func openLock(path string) (*os.File, error) {
	lock, err := safefile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, safefile.ErrNotRegular) && os.Rename(path, path+damagedSuffix) == nil {
		lock, err = safefile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) { // what cannot be written can be supervised all the same
		return safefile.Open(path)
	}
	return lock, err
}

func on(d disk, dir string) *Store {
	return &Store{dir: dir, disk: d, frozen: map[string]bool{}, seen: map[string]extras{}}
}

// Close gives the lock up.
func (s *Store) Close() error { return s.lock.Close() }

// SessionDir returns the directory of a session, for its log and its exit_status.
func (s *Store) SessionDir(id string) string { return filepath.Join(s.dir, "sessions", id) }

// Create makes the directory of a new session. It fails if there is one.
func (s *Store) Create(id string) error {
	if err := s.disk.Mkdir(s.SessionDir(id), 0o700); err != nil {
		return fmt.Errorf("cannot create session %q: %w", id, err)
	}
	failpoint.Hit("create.directory-made")
	return nil
}

// ErrNewer is returned when a session's record was written by a newer version, which this one must not replace.
var ErrNewer = errors.New("the record was written by a newer version of Corral")

// Save replaces the session's record, durably. The calls for different sessions may run at the same time; Load may not.
func (s *Store) Save(rec *session.Session, writer string) error {
	if s.frozen[rec.ID] {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, ErrNewer)
	}
	failpoint.Hit("save.before")
	data, err := encode(rec, s.seen[rec.ID], writer)
	if err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	err = s.write(s.SessionDir(rec.ID), data)
	if errors.Is(err, fs.ErrNotExist) && s.remake(rec.ID) == nil {
		err = s.write(s.SessionDir(rec.ID), data)
	}
	if err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	failpoint.Hit("save.after")
	return nil
}

// write replaces the record in the session's directory.
func (s *Store) write(dir string, data []byte) error {
	record, previous := filepath.Join(dir, RecordName), filepath.Join(dir, previousName)
	first, err := s.keep(record, previous)
	if err != nil {
		return err
	}
	failpoint.Hit("save.kept")
	if err = (atomicfile.Disk{Calls: s.disk}).Write(record, data, 0o600); err == nil && first {
		err = s.syncNames() // the directory is there for as long as what is in it
	}
	return err
}

// remake makes the directory of a session again that somebody has removed, with those above it: what is supervised has to be on disk.
func (s *Store) remake(id string) (err error) {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "sessions"), s.SessionDir(id)} {
		if err = s.disk.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// keep gives the record a second name, which it has until the next one is kept: at no moment is there neither the old nor the new. Where there is
// no record, because it is the first or was damaged, the one before it stays what it is.
func (s *Store) keep(record, previous string) (first bool, err error) {
	link := previous + ".new"
	_ = s.disk.Unlink(link)
	err = s.disk.Link(record, link)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, fs.ErrPermission) { // it is a directory: the record that is written next sets it aside
		return false, nil
	}
	failpoint.Hit("save.linked")
	if err == nil {
		err = s.disk.Rename(link, previous)
	}
	if errors.Is(err, fs.ErrExist) && s.disk.Rename(previous, previous+damagedSuffix) == nil { // a directory is in its place
		err = s.disk.Rename(link, previous)
	}
	_ = s.disk.Unlink(link) // rename(2) leaves it where both are names of one inode already
	return false, err
}

// syncNames makes durable which sessions there are.
func (s *Store) syncNames() error { return s.sync(filepath.Join(s.dir, "sessions")) }

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

// SyncExit makes the record of the session's last exit durable: what follows from that alone needs no other record.
func (s *Store) SyncExit(id string) error {
	if err := (atomicfile.Disk{Calls: s.disk}).Sync(filepath.Join(s.SessionDir(id), exitstatus.FileName)); err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// KeepExit writes the record of the session's last exit, durably: its shim could not.
func (s *Store) KeepExit(id string, status exitstatus.Status) error {
	pending, err := exitstatus.Prepare(s.SessionDir(id))
	if err == nil {
		err = pending.Write(status)
	}
	if err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// Remove forgets a session with its log. Its directory loses its name at one stroke and for good, so that what a power cut leaves is the session as it
// was, or none; then it is taken away.
func (s *Store) Remove(id string) error {
	gone := filepath.Join(s.dir, "sessions", "."+id+removedSuffix)
	if s.disk.Exists(gone) {
		s.discard(gone)
	}
	if err := s.disk.Rename(s.SessionDir(id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove session %q: %w", id, err)
	}
	failpoint.Hit("remove.record-gone")
	if s.syncNames() == nil { // else the next Load takes it away, if the disk has it that it was removed at all
		_ = s.disk.RemoveAll(gone)
	}
	delete(s.frozen, id)
	delete(s.seen, id)
	return nil
}

// discard takes away a directory that had been removed when the power was cut. On a disk without a journal that may have left it both of its names: the
// record before goes first, and for good, so that what another power cut leaves is still the session or none.
func (s *Store) discard(gone string) {
	for _, name := range []string{previousName, RecordName} {
		if s.disk.Unlink(filepath.Join(gone, name)) == nil && s.sync(gone) != nil {
			return
		}
	}
	_ = s.disk.RemoveAll(gone)
}

// removedSuffix ends the name of a directory that is being removed. It begins with a dot, which no id does.
const removedSuffix = ".removed"

// envelope is what stands in the file around a session.
type envelope struct {
	Schema   int             `json:"schema"`
	Writer   string          `json:"writer"` // the version of Corral that wrote it
	Checksum string          `json:"checksum"`
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
		data, err = json.MarshalIndent(envelope{Schema, writer, checksum(body), body}, "", " ")
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
	// Whoever edits a record takes its checksum out: what is left in and does not fit is damage, which nobody can tell from a slip of the hand.
	if env.Checksum != "" && env.Checksum != checksum(body.Bytes()) {
		return nil, env, extras{}, errChecksum
	}
	rec := new(session.Session)
	if err := json.Unmarshal(body.Bytes(), rec); err != nil {
		return nil, env, extras{}, err
	}
	if env.Checksum == "" && !sane(rec) {
		return nil, env, extras{}, errors.New("it has no checksum and is not the record of a session")
	}
	more, err := extrasOf(body.Bytes())
	return rec, env, more, err
}

var errChecksum = errors.New("the checksum does not match")

// sane tells whether a record that somebody has edited has what every session has.
func sane(rec *session.Session) bool {
	return rec.Agent != "" && filepath.IsAbs(rec.WorkingDirectory) && !rec.Created.IsZero() &&
		(len(rec.Command) > 0 && rec.Command[0] != "") && (rec.Run == nil || rec.Run.ID != "" && rec.Run.Unit != "")
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
