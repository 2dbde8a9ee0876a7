package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// described is a session that says which one it is.
func described(text string) *session.Session {
	return &session.Session{ID: "shop", Agent: "claude", Command: []string{"claude"}, WorkingDirectory: "/shop", Created: t0, Description: text}
}

// attempt is something that the store does and that a power cut may interrupt.
type attempt struct {
	name   string
	before func(t *testing.T, s *Store, m *memory) // and all of that is on disk
	do     func(t *testing.T, s *Store, m *memory)
	old    string // the session's description before, "" if there is none
	now    string // and once it is done
	told   bool   // what was damaged before is told of
}

func save(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, _ *memory) {
		for _, text := range texts {
			require.NoError(t, s.Save(described(text), "test"))
		}
	}
}

func create(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, m *memory) {
		require.NoError(t, s.Create("shop"))
		save(texts...)(t, s, m)
	}
}

// damaged is a session whose last record was damaged.
func damaged(texts ...string) func(*testing.T, *Store, *memory) {
	return func(t *testing.T, s *Store, m *memory) {
		create(texts...)(t, s, m)
		dir, _, err := m.parent("/state/sessions/shop/" + RecordName)
		require.NoError(t, err)
		dir.set(RecordName, m.add(&inode{data: "\x00\x00"}))
	}
}

func load(t *testing.T, s *Store, _ *memory) { _, _ = loadOne(t, s) }

var attempts = []attempt{
	{name: "a creation", before: nil, do: create(), old: "", now: ""},
	{name: "a creation and the first save", before: nil, do: create("new"), old: "", now: "new"},
	{name: "the first save", before: create(), do: save("new"), old: "", now: "new"},
	{name: "the second save", before: create("old"), do: save("new"), old: "old", now: "new"},
	{name: "the third save", before: create("older", "old"), do: save("new"), old: "old", now: "new"},
	{name: "a removal", before: create("older", "old"), do: func(t *testing.T, s *Store, _ *memory) { require.NoError(t, s.Remove("shop")) }, old: "old", now: ""},
	{name: "a removal of one that was saved once", before: create("old"), do: func(t *testing.T, s *Store, _ *memory) { require.NoError(t, s.Remove("shop")) }, old: "old", now: ""},
	{name: "a removal and a new session of that name", before: create("older", "old"), do: func(t *testing.T, s *Store, m *memory) {
		require.NoError(t, s.Remove("shop"))
		create("new")(t, s, m)
	}, old: "old", now: "new"},
	{name: "a damaged record is set aside", before: damaged("older", "old"), do: load, old: "older", now: "older", told: true},
	{name: "a damaged record is set aside, then a save", before: damaged("older", "old"), do: func(t *testing.T, s *Store, m *memory) {
		load(t, s, m)
		save("new")(t, s, m)
	}, old: "older", now: "new", told: true},
	{name: "a damaged record with none before it is set aside", before: damaged("old"), do: load, old: "", now: "", told: true},
}

// TestPowerCuts cuts the power before each system call of each attempt, and again before each one of the loading that follows; and tries every file
// system that either may leave. What is loaded is the session as it was or as it is to be, never another thing, and nothing untrue is told of it; what was
// done is done for good; and it can be saved again.
func TestPowerCuts(t *testing.T) {
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			left := 0
			for n, done := 0, false; !done; n++ {
				m := newMemory()
				if a.before != nil {
					a.before(t, on(m, "/state"), m)
					m = m.settled()
				}
				done = !m.cutAt(n, func() { a.do(t, on(m, "/state"), m) })
				allowed := []string{a.old, a.now}
				between := a.old != "" && a.now != "" && a.name == "a removal and a new session of that name"
				switch {
				case done:
					allowed = []string{a.now}
				case between:
					allowed = append(allowed, "")
				}
				m.afterPowerCut(func(m *memory) {
					left++
					a.check(t, m, allowed, fmt.Sprintf("after %d calls", n))
				})
			}
			t.Logf("%d file systems", left)
		})
	}
}

// check loads what a power cut has left, with another power cut in each place and without.
func (a attempt) check(t *testing.T, m *memory, allowed []string, when string) {
	for n, done := 0, false; !done; n++ {
		once := m.settled()
		done = !once.cutAt(n, func() { a.checkLoad(t, once, allowed, when) })
		if !done {
			once.afterPowerCut(func(twice *memory) { a.checkLoad(t, twice, allowed, when+fmt.Sprintf(" and %d of loading", n)) })
		}
	}
	s := on(m, "/state")
	rec, _ := loadOne(t, s)
	if rec == nil {
		if a.told && a.now == "" { // it is for a person to mend
			return
		}
		require.NoError(t, s.Create("shop"), "%s: the name is free", when)
	}
	for _, text := range []string{"later", "latest"} {
		require.NoError(t, s.Save(described(text), "test"), when)
		m.afterPowerCut(func(m *memory) {
			got, _ := loadOne(t, on(m, "/state"))
			require.Equal(t, described(text), got, when)
		})
	}
}

func (a attempt) checkLoad(t *testing.T, m *memory, allowed []string, when string) {
	rec, found := loadOne(t, on(m, "/state"))
	got := ""
	if rec != nil {
		got = rec.Description
		require.Equal(t, described(got), rec, when)
	}
	require.Contains(t, allowed, got, when)
	if !a.told {
		require.Nil(t, found, "%s: %v", when, found)
	}
}

// TestPowerCutsWhileAnExitIsRecorded: what the shim writes is read whole or not at all, and is there for good once it was synced.
func TestPowerCutsWhileAnExitIsRecorded(t *testing.T) {
	const dir, path = "/state/sessions/shop", "/state/sessions/shop/" + exitstatus.FileName
	of := func(run string, value int) exitstatus.Status {
		return exitstatus.Status{RunID: run, Code: exitstatus.Exited, Value: value, Started: at(1), Exited: at(2)}
	}
	write := func(t *testing.T, m *memory, status exitstatus.Status) {
		f, err := (atomicfile.Disk{Calls: m}).Create(dir, exitstatus.FileName, 0o600) // as exitstatus.Prepare and Write do
		require.NoError(t, err)
		require.NoError(t, f.Reserve(4096))
		require.NoError(t, f.ReplaceThenSync(status.Append(nil)))
	}
	for _, earlier := range []bool{false, true} {
		for synced, done := 0, false; !done; synced++ {
			m := newMemory()
			s := on(m, "/state")
			create("old")(t, s, m)
			if earlier {
				write(t, m, of("r1", 1))
			}
			m = m.settled()
			s = on(m, "/state")
			told := false
			done = !m.cutAt(synced, func() {
				write(t, m, of("r2", 7))
				require.NoError(t, s.SyncExit("shop"))
				told = true
			})
			m.afterPowerCut(func(m *memory) {
				data, err := m.Read(path, 4096)
				if err != nil {
					require.False(t, told || earlier)
					return
				}
				status, err := exitstatus.Parse(data)
				if err != nil {
					require.False(t, told, "what was told is there")
					return
				}
				if status.RunID == "r1" {
					require.False(t, told)
					require.Equal(t, 1, status.Value)
				} else {
					require.Equal(t, 7, status.Value)
					require.Equal(t, "r2", status.RunID)
				}
				rec, found := loadOne(t, on(m, "/state"))
				require.Nil(t, found)
				require.Equal(t, described("old"), rec)
			})
		}
	}
}

// TestEachCallFails: whichever system call of a save or a removal fails, for lack of room or because the disk does, the session is what it was or what it is
// to be, also after a power cut, and the next attempt succeeds.
func TestEachCallFails(t *testing.T) {
	for _, a := range attempts {
		if a.before == nil || a.told {
			continue
		}
		for _, fault := range []error{unix.ENOSPC, unix.EIO, unix.EROFS} {
			t.Run(a.name+", "+fault.Error(), func(t *testing.T) {
				probe := newMemory()
				a.before(t, on(probe, "/state"), probe)
				calls := probe.calls
				a.do(t, on(probe, "/state"), probe)
				for n := range probe.calls - calls {
					m := newMemory()
					a.before(t, on(m, "/state"), m)
					m = m.settled()
					m.fails, m.left = fault, n
					s := on(m, "/state")
					var err error
					if a.now == "" {
						err = s.Remove("shop")
					} else if a.old == "" || a.name[:5] != "a rem" {
						err = s.Save(described(a.now), "test")
					}
					m.left, m.fails = never, nil
					allowed := []string{a.old, a.now}
					if err == nil && errors.Is(fault, unix.ENOSPC) && a.now != "" && a.name[:5] != "a rem" {
						allowed = []string{a.now}
					}
					if err != nil {
						require.ErrorIs(t, err, fault)
						require.ErrorContains(t, err, `"shop"`)
					}
					m.afterPowerCut(func(m *memory) { a.checkLoad(t, m, allowed, fmt.Sprintf("call %d fails", n)) })
					if a.now == "" {
						require.NoError(t, s.Remove("shop"))
						continue
					}
					require.NoError(t, s.Save(described("later"), "test"))
					m.afterPowerCut(func(m *memory) {
						got, found := loadOne(t, on(m, "/state"))
						require.Nil(t, found)
						require.Equal(t, described("later"), got)
					})
				}
			})
		}
	}
}

// TestNothingIsLeftOver of what a save needs.
func TestNothingIsLeftOver(t *testing.T) {
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
