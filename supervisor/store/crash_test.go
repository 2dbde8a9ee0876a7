package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// recordDescribed returns a session with this description, by which the test recognizes it.
func recordDescribed(text string) *session.Session {
	return &session.Session{
		ID: "shop", Agent: "claude", Command: []string{"claude"}, WorkingDirectory: "/shop", Created: t0, Description: text,
	}
}

// operation is something that the store does and that a power cut may interrupt.
type operation struct {
	name    string
	before  func(t *testing.T, s *Store, m *memory) // its changes are flushed to disk
	do      func(t *testing.T, s *Store, m *memory)
	oldText string // the session's description before the operation, "" if there is no session
	newText string // the same after it
	damaged bool   // before damages the record, and loading reports this
}

func save(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, _ *memory) {
		for _, text := range texts {
			require.NoError(t, s.Save(recordDescribed(text), "test"))
		}
	}
}

func create(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, m *memory) {
		require.NoError(t, s.Create("shop"))
		save(texts...)(t, s, m)
	}
}

// damaged creates a session whose current record is damaged.
func damaged(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, m *memory) {
		create(texts...)(t, s, m)
		dir, _, err := m.parent("/state/sessions/shop/" + RecordName)
		require.NoError(t, err)
		dir.set(RecordName, m.add(&inode{data: "\x00\x00"}))
	}
}

func load(t *testing.T, s *Store, _ *memory) { _, _ = loadOne(t, s) }

func remove(t *testing.T, s *Store, _ *memory) { require.NoError(t, s.Remove("shop")) }

var operations = []operation{
	{name: "a creation", before: nil, do: create(), oldText: "", newText: ""},
	{name: "a creation and the first save", before: nil, do: create("new"), oldText: "", newText: "new"},
	{name: "the first save", before: create(), do: save("new"), oldText: "", newText: "new"},
	{name: "the second save", before: create("old"), do: save("new"), oldText: "old", newText: "new"},
	{name: "the third save", before: create("older", "old"), do: save("new"), oldText: "old", newText: "new"},
	{name: "a removal", before: create("older", "old"), do: remove, oldText: "old", newText: ""},
	{name: "a removal of one that was saved once", before: create("old"), do: remove, oldText: "old", newText: ""},
	{
		name:   "a removal and a new session of that name",
		before: create("older", "old"),
		do: func(t *testing.T, s *Store, m *memory) {
			remove(t, s, m)
			create("new")(t, s, m)
		},
		oldText: "old", newText: "new",
	},
	{
		name:   "a damaged record is set aside",
		before: damaged("older", "old"), do: load,
		oldText: "older", newText: "older", damaged: true,
	},
	{
		name:   "a damaged record is set aside, then a save",
		before: damaged("older", "old"),
		do: func(t *testing.T, s *Store, m *memory) {
			load(t, s, m)
			save("new")(t, s, m)
		},
		oldText: "older", newText: "new", damaged: true,
	},
	{
		name:   "a damaged record without a previous one is set aside",
		before: damaged("old"), do: load,
		oldText: "", newText: "", damaged: true,
	},
}

// TestStore_SurvivesPowerCuts cuts the power before each system call of each operation, and again
// before each system call of the Load that follows, and tests every state in which the file system
// may be then. Load returns the old or the new session, nothing else, and reports no damage that
// there is not; a completed operation is durable; and the session can be saved again.
func TestStore_SurvivesPowerCuts(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			fileSystems := 0
			for n, done := 0, false; !done; n++ {
				m := newMemory()
				if op.before != nil {
					op.before(t, newStore(m, "/state"), m)
					m = m.flushed()
				}
				done = !m.runWithCut(n, func() { op.do(t, newStore(m, "/state"), m) })
				allowed := []string{op.oldText, op.newText}
				between := op.oldText != "" && op.newText != "" && op.name == "a removal and a new session of that name"
				switch {
				case done:
					allowed = []string{op.newText}
				case between:
					allowed = append(allowed, "")
				}
				m.afterPowerCut(func(m *memory) {
					fileSystems++
					op.check(t, m, allowed, fmt.Sprintf("after %d calls", n))
				})
			}
			t.Logf("%d file systems", fileSystems)
		})
	}
}

// check loads the session after a power cut: with another power cut before each system call, and
// without.
func (op operation) check(t *testing.T, m *memory, allowed []string, when string) {
	for n, done := 0, false; !done; n++ {
		once := m.flushed()
		done = !once.runWithCut(n, func() { op.checkLoad(t, once, allowed, when) })
		if !done {
			once.afterPowerCut(func(twice *memory) {
				op.checkLoad(t, twice, allowed, when+fmt.Sprintf(" and %d of loading", n))
			})
		}
	}
	s := newStore(m, "/state")
	rec, _ := loadOne(t, s)
	if rec == nil {
		if op.damaged && op.newText == "" { // a person has to repair it
			return
		}
		require.NoError(t, s.Create("shop"), "%s: the name is free", when)
	}
	for _, text := range []string{"later", "latest"} {
		require.NoError(t, s.Save(recordDescribed(text), "test"), when)
		m.afterPowerCut(func(m *memory) {
			got, _ := loadOne(t, newStore(m, "/state"))
			require.Equal(t, recordDescribed(text), got, when)
		})
	}
}

func (op operation) checkLoad(t *testing.T, m *memory, allowed []string, when string) {
	rec, found := loadOne(t, newStore(m, "/state"))
	got := ""
	if rec != nil {
		got = rec.Description
		require.Equal(t, recordDescribed(got), rec, when)
	}
	require.Contains(t, allowed, got, when)
	if !op.damaged {
		require.Nil(t, found, "%s: %v", when, found)
	}
}

// The exit_status that a shim writes is read completely or not at all, and is durable after
// SyncExit.
func TestSyncExit_SurvivesPowerCuts(t *testing.T) {
	const dir, path = "/state/sessions/shop", "/state/sessions/shop/" + exitstatus.FileName
	of := func(run string, value int) exitstatus.Status {
		return exitstatus.Status{RunID: run, Code: exitstatus.Exited, Value: value, Started: at(1), Exited: at(2)}
	}
	write := func(t *testing.T, m *memory, status exitstatus.Status) {
		f, err := (atomicfile.Disk{Calls: m}).Create(dir, exitstatus.FileName, 0o600) // as package exitstatus does
		require.NoError(t, err)
		require.NoError(t, f.Reserve(4096))
		require.NoError(t, f.Replace(status.Append(nil)))
		require.NoError(t, f.Sync())
	}
	for _, earlier := range []bool{false, true} {
		for synced, done := 0, false; !done; synced++ {
			m := newMemory()
			s := newStore(m, "/state")
			create("old")(t, s, m)
			if earlier {
				write(t, m, of("r1", 1))
			}
			m = m.flushed()
			s = newStore(m, "/state")
			isSynced := false
			done = !m.runWithCut(synced, func() {
				write(t, m, of("r2", 7))
				require.NoError(t, s.SyncExit("shop"))
				isSynced = true
			})
			m.afterPowerCut(func(m *memory) {
				data, err := m.Read(path, 4096)
				if err != nil {
					require.False(t, isSynced || earlier)
					return
				}
				status, err := exitstatus.Parse(data)
				if err != nil {
					require.False(t, isSynced, "after SyncExit, the record is complete")
					return
				}
				if status.RunID == "r1" {
					require.False(t, isSynced)
					require.Equal(t, 1, status.Value)
				} else {
					require.Equal(t, 7, status.Value)
					require.Equal(t, "r2", status.RunID)
				}
				rec, found := loadOne(t, newStore(m, "/state"))
				require.Nil(t, found)
				require.Equal(t, recordDescribed("old"), rec)
			})
		}
	}
}

// Whichever system call of a save or a removal fails, because the disk is full or defective, the
// session is in its old or its new state, also after a power cut, and the next save or removal
// succeeds.
func TestStore_SurvivesFailedSystemCalls(t *testing.T) {
	for _, op := range operations {
		if op.before == nil || op.damaged {
			continue
		}
		isRemoval := strings.HasPrefix(op.name, "a removal")
		for _, fault := range []error{unix.ENOSPC, unix.EIO, unix.EROFS} {
			t.Run(op.name+", "+fault.Error(), func(t *testing.T) {
				probe := newMemory()
				op.before(t, newStore(probe, "/state"), probe)
				calls := probe.calls
				op.do(t, newStore(probe, "/state"), probe)
				for n := range probe.calls - calls {
					m := newMemory()
					op.before(t, newStore(m, "/state"), m)
					m = m.flushed()
					m.fault, m.callsLeft = fault, n
					s := newStore(m, "/state")
					var err error
					if op.newText == "" {
						err = s.Remove("shop")
					} else if op.oldText == "" || !isRemoval {
						err = s.Save(recordDescribed(op.newText), "test")
					}
					m.callsLeft, m.fault = never, nil
					allowed := []string{op.oldText, op.newText}
					if err == nil && errors.Is(fault, unix.ENOSPC) && op.newText != "" && !isRemoval {
						allowed = []string{op.newText}
					}
					if err != nil {
						require.ErrorIs(t, err, fault)
						require.ErrorContains(t, err, `"shop"`)
					}
					m.afterPowerCut(func(m *memory) { op.checkLoad(t, m, allowed, fmt.Sprintf("call %d fails", n)) })
					if op.newText == "" {
						require.NoError(t, s.Remove("shop"))
						continue
					}
					require.NoError(t, s.Save(recordDescribed("later"), "test"))
					m.afterPowerCut(func(m *memory) {
						got, found := loadOne(t, newStore(m, "/state"))
						require.Nil(t, found)
						require.Equal(t, recordDescribed("later"), got)
					})
				}
			})
		}
	}
}

func TestSave_LeavesNoTemporaryFiles(t *testing.T) {
	s := open(t, t.TempDir())
	dir := saved(t, s, record("shop"), record("shop"), record("shop"))
	assert.Equal(t, []string{RecordName, previousName}, namesIn(t, dir))
	require.NoError(t, s.Remove("shop"))
	assert.Empty(t, namesIn(t, filepath.Dir(dir)))
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
