package store

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

var update = flag.Bool("update", false, "write the records in testdata/v1 that do not exist yet")

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// record returns a session with a value in most of its fields.
func record(id string) *session.Session {
	return &session.Session{
		ID: id, Agent: "claude", Description: `says "hello" <& 你好>`,
		Command:       []string{"claude", "", "a b", "$HOME", "line\nline", "'\""},
		ResumeCommand: []string{"claude", "--resume", "c1"}, ConversationID: "c1",
		WorkingDirectory: "/home/u/shop", Exclusive: true, Environment: []string{"A=b=c", "EMPTY="},
		Prompt: "fix the tests", Labels: map[string]string{"team": "shop"}, OnLogin: "resume",
		UnitProperties: []session.Property{{Name: "MemoryMax", Signature: "t", Value: "@t 536870912"}},
		Created:        t0, Archived: at(900), NRuns: 2, StateChanged: at(800),
		Past: []session.Run{{
			ID: "r1", BootID: "b", Unit: "app-corral-claude-shop.scope", Requested: at(1),
			Scope: session.ScopeGone, ScopeGone: at(5), StartError: "no such directory", StartEnded: at(4),
		}},
		Run: &session.Run{
			ID: "r2", BootID: "b", Unit: "app-corral-claude-shop.scope", Resumed: true, Requested: at(10),
			Scope: session.ScopeGone, InvocationID: "inv", ControlGroup: "/user.slice/x",
			ScopeResult: "timeout", ScopeGone: at(700), TimedOut: at(650),
			Tmux: session.Dead, TmuxProc: session.Process{PID: 10, Start: 100},
			Shim: session.Dead, ShimProc: session.Process{PID: 11, Start: 110}, ShimDied: at(690), TmuxSurvived: true,
			Agent: session.Process{PID: 12, Start: 120}, Started: at(11),
			Exit: &exitstatus.Status{
				RunID: "r2", BootID: "b", PID: 12, Code: exitstatus.Killed, Value: 15, Started: at(11), Exited: at(680),
				UserTime: time.Second, SystemTime: time.Millisecond, MaxRSS: 1 << 20, OOMKills: 1, MemoryMax: 1 << 29,
				PaneClosed: true,
			},
			Intent: session.Suspend, IntentAt: at(600), Why: "idle", MachineDown: at(710),
		},
	}
}

// saved creates a session, saves these records of it one after the other, and returns its
// directory.
func saved(t *testing.T, s *Store, recs ...*session.Session) string {
	t.Helper()
	require.NoError(t, s.Create(recs[0].ID))
	for _, rec := range recs {
		require.NoError(t, s.Save(rec, "test"))
	}
	return s.SessionDir(recs[0].ID)
}

func loadOne(t *testing.T, s *Store) (*session.Session, *Finding) {
	t.Helper()
	all, found, err := s.Load()
	require.NoError(t, err)
	require.LessOrEqual(t, len(all), 1)
	require.LessOrEqual(t, len(found), 1)
	var rec *session.Session
	var finding *Finding
	if len(all) == 1 {
		rec = all[0]
	}
	if len(found) == 1 {
		finding = &found[0]
	}
	return rec, finding
}

func TestLoad_ReturnsWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := record("shop")
	want.Defined, want.Arguments, want.EarlierConversations = true, []string{"--model", "x"}, []string{"c0"}
	want.Run.Conversation, want.Run.ConversationFrom, want.Run.ConversationAt = "c1", session.Reported, at(20)
	saved(t, s, want)
	require.NoError(t, s.Close())
	got, damage := loadOne(t, open(t, dir))
	assert.Nil(t, damage)
	assert.Equal(t, want, got)
}

func TestStore_IsPrivateToTheUser(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := filepath.Join(t.TempDir(), "corral")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	s := open(t, dir)
	saved(t, s, record("shop"), record("shop"))
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		assert.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
}

func TestOpen_LocksOtherProcessesOut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(dir)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, dir)
	require.NoError(t, s.Close())
	open(t, dir)
}

// A lock file that is not a regular file must not prevent the supervision of all sessions.
func TestOpen_SetsALockThatIsNotAFileAside(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a FIFO":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":     func(path string) error { return os.MkdirAll(path+"/full", 0o700) },
		"a dangling link": func(path string) error { return os.Symlink("/nonexistent", path) },
		"a live link":     func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, put(filepath.Join(dir, lockName)))
			open(t, dir)
			info, err := os.Lstat(filepath.Join(dir, lockName))
			require.NoError(t, err)
			assert.True(t, info.Mode().IsRegular())
			_, err = Open(dir)
			require.ErrorIs(t, err, ErrLocked)
			_, err = os.Lstat(filepath.Join(dir, lockName+atomicfile.AsideSuffix))
			require.NoError(t, err)
		})
	}
}

// A directory with the name of a record must not prevent all later saves.
func TestSave_ReplacesDirectories(t *testing.T) {
	for _, name := range []string{RecordName, previousName, previousName + ".new", "." + RecordName + ".new"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			rec := record("shop")
			path := filepath.Join(saved(t, s, rec, rec), name)
			for _, text := range []string{"now", "once more", "and again"} {
				for _, inside := range []string{"", "/full"} {
					require.NoError(t, os.RemoveAll(path))
					require.NoError(t, os.MkdirAll(path+inside, 0o700))
					rec.Description = text + inside
					require.NoError(t, s.Save(rec, "test"))
					got, _ := loadOne(t, s)
					assert.Equal(t, text+inside, got.Description)
				}
			}
		})
	}
}

// A daemon that starts while its disk is read-only supervises the sessions that exist. This test
// sets a mode instead, which does not restrict root; TestDisk_FullThenReadOnly (e2e) covers root.
func TestOpen_AcceptsAReadOnlyLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	saved(t, s, record("shop"))
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(filepath.Join(dir, lockName), 0o400))
	s = open(t, dir)
	rec, found := loadOne(t, s)
	assert.Nil(t, found)
	assert.Equal(t, record("shop"), rec)
	_, err := Open(dir)
	require.ErrorIs(t, err, ErrLocked)
}

func TestSave_RecreatesARemovedDirectory(t *testing.T) {
	top := t.TempDir()
	s := open(t, filepath.Join(top, "state"))
	rec := record("shop")
	for _, gone := range []string{saved(t, s, rec), filepath.Join(top, "state", "sessions"), filepath.Join(top, "state")} {
		require.NoError(t, os.RemoveAll(gone))
		require.NoError(t, s.Save(rec, "test"))
		loaded, finding := loadOne(t, s)
		assert.Nil(t, finding)
		assert.Equal(t, rec.ID, loaded.ID)
	}
}

func TestCreate_RefusesAnExistingDirectory(t *testing.T) {
	s := open(t, t.TempDir())
	require.NoError(t, s.Create("shop"))
	assert.ErrorIs(t, s.Create("shop"), os.ErrExist)
}

// rewrite changes the session in a record as another version of Corral would have written it.
func rewrite(t *testing.T, path string, schema int, change func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var env envelope
	require.NoError(t, json.Unmarshal(data, &env))
	body := map[string]any{}
	require.NoError(t, json.Unmarshal(env.Session, &body))
	change(body)
	env.Session, err = json.Marshal(body)
	require.NoError(t, err)
	env.Schema, env.Writer, env.Checksum = schema, "9.9", checksum(env.Session)
	data, err = json.Marshal(env)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func TestSave_KeepsUnknownFields(t *testing.T) {
	s := open(t, t.TempDir())
	path := filepath.Join(saved(t, s, record("shop")), RecordName)
	rewrite(t, path, Schema, func(body map[string]any) {
		body["from_the_future"] = map[string]any{"a": []any{1.0, "x"}}
		body["big"] = json.Number("12345678901234567890")
	})
	rec, damage := loadOne(t, s)
	require.Nil(t, damage)
	rec.Description = "changed"
	rec.Prompt = "" // is omitted from the record, and must not be restored from the previous one
	require.NoError(t, s.Save(rec, "test"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, data))
	assert.Contains(t, compact.String(), `"from_the_future":{"a":[1,"x"]}`)
	assert.Contains(t, compact.String(), `"big":12345678901234567890`)
	assert.Contains(t, compact.String(), `"description":"changed"`)
	assert.NotContains(t, compact.String(), `"prompt"`)
	again, damage := loadOne(t, s)
	require.Nil(t, damage)
	assert.Equal(t, rec, again)
}

// This includes the fields of a run that becomes a past one.
func TestSave_KeepsUnknownFieldsAtEveryLevel(t *testing.T) {
	s := open(t, t.TempDir())
	path := filepath.Join(saved(t, s, record("shop")), RecordName)
	rewrite(t, path, Schema, func(body map[string]any) {
		run := body["run"].(map[string]any)
		run["of_the_run"] = "a"
		run["exit"].(map[string]any)["OfTheExit"] = "b"
		run["agent_process"].(map[string]any)["of_the_process"] = "c"
		body["past"].([]any)[0].(map[string]any)["of_the_past"] = "d"
	})
	rec, found := loadOne(t, s)
	require.Nil(t, found)
	rec.Past = append(rec.Past, *rec.Run)
	rec.Past[1].Agent = session.Process{} // is omitted, and its unknown field must not restore it
	rec.Run = &session.Run{ID: "r3", BootID: "b", Unit: "u"}
	require.NoError(t, s.Save(rec, "test"))
	again, found := loadOne(t, s)
	require.Nil(t, found)
	assert.Equal(t, rec, again)
	body, err := parse(sessionIn(t, path))
	require.NoError(t, err)
	past := body["past"].([]any)
	assert.Equal(t, "d", past[0].(map[string]any)["of_the_past"])
	assert.Equal(t, "a", past[1].(map[string]any)["of_the_run"])
	assert.Equal(t, "b", past[1].(map[string]any)["exit"].(map[string]any)["OfTheExit"])
	assert.NotContains(t, past[1], "agent_process")
	assert.NotContains(t, body["run"], "of_the_run", "the field is one of another run")
}

func sessionIn(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var env envelope
	require.NoError(t, json.Unmarshal(data, &env))
	return env.Session
}

// A record without a checksum was edited on purpose, and is used if it is a valid session. One
// whose checksum does not match is damaged, and the finding describes how to have it accepted.
func TestLoad_AcceptsRecordsEditedByHand(t *testing.T) {
	edit := func(t *testing.T, path string, changes ...string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(changes...).Replace(string(data))), 0o600))
	}
	for _, row := range []struct {
		name    string
		changes []string
		want    Kind
		used    bool
	}{
		{"with its checksum left in", []string{"fix the tests", "write more tests"}, SetAside, false},
		{"without its checksum", []string{"fix the tests", "write more tests", `"checksum"`, `"was"`}, Edited, true},
		{"into something that is not a session", []string{`"/home/u/shop"`, `"shop"`, `"checksum"`, `"was"`}, SetAside, false},
		{"into the record of another session", []string{`"id": "shop"`, `"id": "other"`, `"checksum"`, `"was"`}, SetAside, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := open(t, t.TempDir())
			before := record("shop")
			before.Prompt = "before"
			path := filepath.Join(saved(t, s, before, record("shop")), RecordName)
			// The edit must not change the previous record, of which the current one may be a hard link.
			require.NoError(t, os.WriteFile(path+".copy", readRecord(t, path), 0o600))
			require.NoError(t, os.Rename(path+".copy", path))
			edit(t, path, row.changes...)
			rec, found := loadOne(t, s)
			require.NotNil(t, found)
			assert.Equal(t, row.want, found.Kind)
			if !row.used {
				assert.Equal(t, "before", rec.Prompt)
				return
			}
			assert.Equal(t, "write more tests", rec.Prompt)
			require.NoError(t, s.Save(rec, "test"))
			_, found = loadOne(t, s)
			assert.Nil(t, found, "it has a checksum again")
		})
	}
	assert.Contains(t, Finding{Err: errChecksum, Path: "p"}.String(),
		"if you have edited it, delete the line of the checksum")
}

func readRecord(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func TestSave_RefusesARecordTooLargeToRead(t *testing.T) {
	s := open(t, t.TempDir())
	saved(t, s, record("shop"))
	rec := record("shop")
	rec.Prompt = strings.Repeat("x", maxRecord)
	require.ErrorContains(t, s.Save(rec, "test"), "more than will be read")
	got, found := loadOne(t, s)
	assert.Nil(t, found)
	assert.Equal(t, record("shop"), got)
}

func TestLoad_ReturnsANewerRecordReadOnly(t *testing.T) {
	s := open(t, t.TempDir())
	path := filepath.Join(saved(t, s, record("shop")), RecordName)
	rewrite(t, path, Schema+1, func(map[string]any) {})
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	rec, found := loadOne(t, s)
	require.Equal(t, &Finding{ID: "shop", Kind: Newer, Writer: "9.9"}, found)
	require.Equal(t, "shop", rec.ID)
	require.ErrorIs(t, s.Save(rec, "test"), ErrNewer)
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(now))
	require.NoError(t, s.Remove("shop"))
	saved(t, s, record("shop"))
}

// TestSave_WritesTheOldestSchemaThatSuffices: an older version can use all records but those that
// it would misread, such as that of a session whose agent must not run without its sandbox.
func TestSave_WritesTheOldestSchemaThatSuffices(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*session.Session)
		want   string
	}{
		"as ever":      {func(*session.Session) {}, `"schema": 1,`},
		"in a sandbox": {func(rec *session.Session) { rec.Sandbox = "workspace" }, `"schema": 2,`},
	} {
		t.Run(name, func(t *testing.T) {
			s, rec := open(t, t.TempDir()), record("shop")
			c.change(rec)
			text, err := os.ReadFile(filepath.Join(saved(t, s, rec), RecordName))
			require.NoError(t, err)
			assert.Contains(t, string(text), c.want)
			got, found := loadOne(t, s)
			assert.Nil(t, found)
			assert.Equal(t, rec, got)
		})
	}
}

// damages are the ways in which a record can be damaged by a program that does not replace it
// atomically, or by a disk that reports a write before it is durable.
var damages = map[string]func(t *testing.T, path string){
	"empty":    func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o600)) },
	"not JSON": func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte("{"), 0o600)) },
	"of another session": func(t *testing.T, path string) {
		rewrite(t, path, 1, func(b map[string]any) { b["id"] = "other" })
	},
	"wrong types": func(t *testing.T, path string) {
		rewrite(t, path, 1, func(b map[string]any) { b["command"] = 3 })
	},
	"no session": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte(`{"schema":1}`), 0o600))
	},
	"NUL bytes": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	},
	"cut short": func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
	},
	"a flipped bit": func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data = bytes.Replace(data, []byte("fix the tests"), []byte("fix the tesus"), 1)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	},
	"huge":     func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100<<20)) },
	"too long": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, maxRecord+1)) },
	"a symbolic link": func(t *testing.T, path string) {
		require.NoError(t, os.Rename(path, path+".elsewhere"))
		require.NoError(t, os.Symlink(path+".elsewhere", path))
	},
	"a directory": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	},
	"a FIFO without a writer": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, unix.Mkfifo(path, 0o600))
	},
}

// TestLoad_FindsADamagedRecordBesideADirectory: the only copy of a damaged record is reported, and
// kept, although a directory was set aside before.
func TestLoad_FindsADamagedRecordBesideADirectory(t *testing.T) {
	s := open(t, t.TempDir())
	rec := record("shop")
	path := filepath.Join(saved(t, s, rec), RecordName)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(path+"/full", 0o700))
	require.NoError(t, s.Save(rec, "test"))
	require.NoError(t, os.Remove(path))
	_ = os.Remove(filepath.Join(filepath.Dir(path), previousName))
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	for range 3 { // now, and at each later start
		_, finding := loadOne(t, s)
		require.NotNil(t, finding)
		assert.Equal(t, Finding{ID: "shop", Kind: Lost, Path: path + atomicfile.AsideSuffix, Err: finding.Err}, *finding)
		text, err := os.ReadFile(finding.Path)
		require.NoError(t, err)
		assert.Equal(t, "damaged", string(text))
	}
}

func TestLoad_ReplacesADamagedRecordByThePreviousOne(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			before, now := record("shop"), record("shop")
			before.Description = "before"
			dir := saved(t, s, before, now)
			path := filepath.Join(dir, RecordName)
			_ = os.Remove(filepath.Join(dir, previousName)) // it may be a hard link of the record that is damaged here
			damage(t, path)
			writeRecord(t, filepath.Join(dir, previousName), before)

			rec, found := loadOne(t, s)
			require.NotNil(t, found)
			assert.Equal(t, Finding{ID: "shop", Kind: SetAside, Path: path + atomicfile.AsideSuffix, Err: found.Err}, *found)
			require.Error(t, found.Err)
			assert.Equal(t, before, rec)
			_, err := os.Lstat(path + ".damaged")
			require.NoError(t, err, "it was set aside")

			rec.Description = "after"
			require.NoError(t, s.Save(rec, "test"))
			again, found := loadOne(t, s)
			assert.Equal(t, &Finding{ID: "shop", Kind: SetAside, Path: path + atomicfile.AsideSuffix}, found,
				"reported until a person removes the file")
			assert.Equal(t, rec, again)
			require.NoError(t, os.RemoveAll(path+atomicfile.AsideSuffix))
			_, found = loadOne(t, s)
			assert.Nil(t, found)
		})
		t.Run(name+", and there is no previous one", func(t *testing.T) {
			s := open(t, t.TempDir())
			dir := saved(t, s, record("shop"))
			saved(t, s, record("other"))
			damage(t, filepath.Join(dir, RecordName))
			rec, found := loadOne(t, s)
			for range 2 { // again at the next start
				require.NotNil(t, found)
				assert.Equal(t, Lost, found.Kind)
				assert.Equal(t, "other", rec.ID, "the other session is loaded")
				assert.DirExists(t, dir)
				rec, found = loadOne(t, s)
			}
		})
	}
}

func writeRecord(t *testing.T, path string, rec *session.Session) {
	t.Helper()
	data, err := encode(rec, extras{}, "test")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func TestRead_NeedsNoLockAndSkipsDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	saved(t, s, record("shop"))
	path := filepath.Join(saved(t, s, record("broken")), RecordName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	all, err := Read(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, record("shop"), all[0])
	assert.FileExists(t, path, "a reader does not set it aside")
	_, err = Read(filepath.Join(dir, "nowhere"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// fixtures are records as version 1 wrote them. All later versions must be able to read them: files
// are added to testdata, but never changed.
var fixtures = map[string]*session.Session{
	"created": {
		ID: "created", Agent: "command", Command: []string{"make", "test"}, WorkingDirectory: "/home/u",
		OnLogin: "ignore", Created: t0, StateChanged: t0,
	},
	"running": {
		ID: "running", Agent: "claude", Command: []string{"claude"}, WorkingDirectory: "/home/u/shop",
		Created: t0, StateChanged: at(2), NRuns: 1,
		Run: &session.Run{
			ID: "r1", BootID: "b", Unit: "app-corral-claude-running.scope", Requested: at(1),
			Scope: session.ScopeActive, InvocationID: "inv", ControlGroup: "/user.slice/x",
			Tmux: session.Alive, TmuxProc: session.Process{PID: 10, Start: 100},
			Shim: session.Alive, ShimProc: session.Process{PID: 11},
			Agent: session.Process{PID: 12, Start: 120}, Started: at(2),
		},
	},
	"everything": record("everything"),
}

var fixtureStates = map[string]session.State{
	"created": session.Created, "running": session.Running, "everything": session.Archived,
}

func TestLoad_ReadsRecordsOfEveryVersion(t *testing.T) {
	for name, want := range fixtures {
		path := filepath.Join("testdata", "v1", name+".json")
		if _, err := os.Stat(path); *update && os.IsNotExist(err) {
			writeRecord(t, path, want)
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		s := open(t, t.TempDir())
		require.NoError(t, s.Create(name))
		require.NoError(t, os.WriteFile(filepath.Join(s.SessionDir(name), RecordName), data, 0o600))
		got, damage := loadOne(t, s)
		require.Nil(t, damage, name)
		assert.Equal(t, want, got)
		assert.Equal(t, fixtureStates[name], got.View().State)
	}
}

// FuzzDecode checks that no content of a file makes decode panic, and that a session that was
// decoded can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for name := range fixtures {
		if data, err := os.ReadFile(filepath.Join("testdata", "v1", name+".json")); err == nil {
			f.Add(data)
			f.Add(data[:len(data)-5])
		}
	}
	f.Add([]byte(`{"schema":1,"session":null}`))
	f.Add([]byte(strings.Repeat("[", 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		// A fuzzer cannot guess checksums: the data is also tried as a body with a correct one.
		body := new(bytes.Buffer)
		if json.Compact(body, data) == nil {
			wrapped, err := json.Marshal(envelope{Schema, "fuzz", checksum(body.Bytes()), body.Bytes()})
			require.NoError(t, err)
			roundTrip(t, wrapped)
		}
		roundTrip(t, data)
	})
}

func roundTrip(t *testing.T, data []byte) {
	rec, _, more, err := decode(data)
	if err != nil {
		return
	}
	_ = rec.View()
	first, err := encode(rec, more, "fuzz")
	require.NoError(t, err)
	again, _, more, err := decode(first)
	require.NoError(t, err)
	second, err := encode(again, more, "fuzz")
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
}
