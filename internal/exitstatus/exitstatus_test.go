package exitstatus

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func exited() Status {
	return Status{
		RunID: "run-7", BootID: "b00t", PID: 4711, Code: Exited, Value: 3,
		Started: time.UnixMicro(1_700_000_000_000_001), Exited: time.UnixMicro(1_700_000_009_999_999),
		ExitedMonotonic: 77*time.Hour + time.Microsecond,
		UserTime:        1500 * time.Microsecond, SystemTime: 2 * time.Second, MaxRSS: 123 << 20,
		OOMKills: 2, MemoryMax: 512 << 20, PaneClosed: true,
	}
}

func TestExitRecord_RoundTrip(t *testing.T) {
	killed, dumped, never := exited(), exited(), exited()
	killed.Code, killed.Value, killed.PaneClosed, killed.SIGTERMMonotonic = Killed, 9, false, 77*time.Hour
	dumped.Code, dumped.Value = Dumped, 11
	never.Code, never.Value, never.PID, never.Error = NotStarted, 0, 0, "command \"foo\nbar=\xff\" not found"
	for _, want := range []Status{exited(), killed, dumped, never, {RunID: "r", Code: Exited}} {
		got, err := Parse(want.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestParseExitRecord_RejectsInvalidRecords(t *testing.T) {
	whole := string(exited().Append(nil))
	for n := range whole {
		_, err := Parse([]byte(whole[:n]))
		require.Error(t, err, "cut off after %d bytes", n)
	}
	for _, c := range []struct{ name, old, now string }{
		{"no code", "CODE=exited\n", ""},
		{"an unknown code", "CODE=exited", "CODE=left"},
		{"an exit code too large", "STATUS=3", "STATUS=256"},
		{"a negative exit code", "STATUS=3", "STATUS=-1"},
		{"killed without a signal", "CODE=exited\nSTATUS=3", "CODE=killed\nSTATUS=0"},
		{"not started, without an error", "CODE=exited", "CODE=not-started"},
		{"no run ID", "RUN_ID=run-7", "RUN_ID="},
		{"a PID that is not a number", "PID=4711", "PID=many"},
		{"a negative time", "USER_USEC=1500", "USER_USEC=-5"},
		{"a time too long", "USER_USEC=1500", "USER_USEC=9223372036854775807"},
		{"a line without =", "PID=4711", "PID"},
		{"a line after the end", "END=1\n", "END=1\nPID=1\n"},
	} {
		bad := strings.Replace(whole, c.old, c.now, 1)
		require.NotEqual(t, whole, bad, c.name)
		_, err := Parse([]byte(bad))
		assert.Error(t, err, c.name)
	}
}

func TestParseExitRecord_IgnoresUnknownNames(t *testing.T) {
	got, err := Parse([]byte("NEW=thing\n" + string(exited().Append(nil))))
	require.NoError(t, err)
	assert.Equal(t, exited(), got)
}

func TestExitRecord_IdentifiersCannotInjectLines(t *testing.T) {
	s := exited()
	s.RunID = "x\nCODE=killed\nSTATUS=9"
	got, err := Parse(s.Append(nil))
	require.NoError(t, err)
	assert.Equal(t, Exited, got.Code)
	assert.Equal(t, 3, got.Value)
}

func TestCode_Names(t *testing.T) {
	assert.Equal(t, "not-started exited killed dumped", strings.Join([]string{
		NotStarted.String(), Exited.String(), Killed.String(), Dumped.String()}, " "))
	assert.Equal(t, "code 9", Code(9).String())
	assert.Equal(t, "code -1", Code(-1).String())
}

func TestExitRecord_AppearsOnlyWhenComplete(t *testing.T) {
	dir := t.TempDir()
	_, err := Read(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	p, err := Prepare(dir)
	require.NoError(t, err)
	_, err = Read(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, p.Write(exited()))
	got, err := Read(dir)
	require.NoError(t, err)
	assert.Equal(t, exited(), got)
	st, err := os.Stat(filepath.Join(dir, FileName))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode())
	assert.Equal(t, int64(len(exited().Append(nil))), st.Size())
}

func TestPrepare_ReplacesLeftoverFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Prepare(dir)
	require.NoError(t, err)
	p, err := Prepare(dir)
	require.NoError(t, err)
	require.NoError(t, p.Write(exited()))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestDiscard_RemovesPreparedRecord(t *testing.T) {
	dir := t.TempDir()
	_, err := Prepare(dir)
	require.NoError(t, err)
	require.NoError(t, Discard(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
	require.NoError(t, Discard(dir), "again")
}

func TestReadExitRecord_RejectsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := Read(dir)
	require.ErrorIs(t, err, ErrIncomplete)
	require.NoError(t, os.WriteFile(path, make([]byte, 2*maxSize), 0o600))
	_, err = Read(dir)
	require.Error(t, err)
	for name, put := range map[string]func() error{
		"a FIFO without a writer": func() error { return syscall.Mkfifo(path, 0o600) },
		"a directory":             func() error { return os.Mkdir(path, 0o700) },
		"a symbolic link":         func() error { return os.Symlink("/dev/zero", path) },
	} {
		require.NoError(t, os.Remove(path))
		require.NoError(t, put())
		_, err = Read(dir)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, os.ErrNotExist, name)
	}
}

// FuzzParse checks that encoding an accepted record and decoding it again yields the same status.
func FuzzParse(f *testing.F) {
	f.Add(exited().Append(nil))
	f.Add([]byte("RUN_ID=r\nCODE=not-started\nERROR=\"x\"\nEND=1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(s.Append(nil))
		if oneLine(s.RunID) == "" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		s.RunID, s.BootID = oneLine(s.RunID), oneLine(s.BootID)
		assert.Equal(t, s, again)
	})
}

// TestStatus_KeepsItsNamesInRecords: sessions' records contain a Status as JSON, those of older
// versions too.
func TestStatus_KeepsItsNamesInRecords(t *testing.T) {
	text, err := json.Marshal(Status{})
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	assert.Equal(t, []string{
		"BootID", "Code", "Error", "Exited", "ExitedMonotonic", "MaxRSS", "MemoryMax", "OOMKills", "PID", "PaneClosed",
		"Prompted", "RunID", "Started", "SystemTime", "Told", "UserTime", "Value",
	}, slices.Sorted(maps.Keys(fields)))
}
