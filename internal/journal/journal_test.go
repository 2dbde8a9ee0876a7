package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// journald is a socket in the place of journald's. It reads records only in receive.
type journald struct {
	t    *testing.T
	conn *net.UnixConn
}

func listen(t *testing.T, path string) *journald {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &journald{t, conn}
}

// receive waits for the next record and returns its fields.
func (j *journald) receive() map[string]string {
	j.t.Helper()
	require.NoError(j.t, j.conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	b := make([]byte, 1<<20)
	n, err := j.conn.Read(b)
	require.NoError(j.t, err)
	fields, err := parse(b[:n])
	require.NoError(j.t, err)
	return fields
}

// parse decodes a datagram like journald.
func parse(b []byte) (map[string]string, error) {
	fields := map[string]string{}
	for rest := string(b); rest != ""; {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return nil, fmt.Errorf("line %q has no end", line)
		}
		name, value, short := strings.Cut(line, "=")
		if !short {
			if len(after) < 8 {
				return nil, fmt.Errorf("field %q has no length", name)
			}
			n := binary.LittleEndian.Uint64([]byte(after[:8]))
			after = after[8:]
			if uint64(len(after)) < n+1 || after[n] != '\n' {
				return nil, fmt.Errorf("field %q is not %d bytes", name, n)
			}
			value, after = after[:n], after[n+1:]
		}
		fields[name] = value
		rest = after
	}
	return fields, nil
}

// openLog returns a logger that sends its records to a socket.
func openLog(t *testing.T, path string) (*slog.Logger, *output) {
	t.Helper()
	l := &Log{level: new(slog.LevelVar)}
	o := newOutput("corrald", encodeEntry, &socket{path: path})
	t.Cleanup(o.close)
	l.out.Store(o)
	return slog.New(l.Handler()), o
}

// TestRecord_TextReplacesTheMessage: the text is the MESSAGE and not in any other field. Tests of
// supervisor and e2e check the records that the supervisor writes.
func TestRecord_TextReplacesTheMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	const unit = "app-corral-claude-shop.scope"
	log.Info("the constant message", "text", "shop: running",
		"message_id", SessionStateChanged, "unit", unit, "exit_code", 3)
	assert.Equal(t, map[string]string{
		"PRIORITY":          "6",
		"SYSLOG_IDENTIFIER": "corrald",
		"MESSAGE":           "shop: running",
		"MESSAGE_ID":        SessionStateChanged,
		"USER_UNIT":         unit,
		"CORRAL_EXIT_CODE":  "3",
	}, j.receive())
}

func TestRecord_HasAttributesAsFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	log = log.With("session", "shop").WithGroup("scope")
	log.Debug("below the level")
	log.Error("cannot save",
		slog.Int("err_2", 1), slog.Duration("took", time.Second),
		slog.Group("in", slog.String("unit", "x")), slog.Group("", slog.Bool("plain", true)), slog.Attr{},
		slog.String("lines", "a\nb=c\n"), slog.String("bytes", "\xff"),
		slog.Any("nil", error(nil)), slog.Any("broken", (*net.UnixAddr)(nil)))
	assert.Equal(t, map[string]string{
		"PRIORITY":             "3",
		"SYSLOG_IDENTIFIER":    "corrald",
		"MESSAGE":              "cannot save",
		"CORRAL_SESSION":       "shop",
		"CORRAL_SCOPE_ERR_2":   "1",
		"CORRAL_SCOPE_TOOK":    "1s",
		"CORRAL_SCOPE_IN_UNIT": "x",
		"CORRAL_SCOPE_PLAIN":   "true",
		"CORRAL_SCOPE_LINES":   "a\nb=c\n",
		"CORRAL_SCOPE_BYTES":   "\ufffd",
		"CORRAL_SCOPE_NIL":     "<nil>",
		"CORRAL_SCOPE_BROKEN":  "<nil>",
	}, j.receive())
}

func TestEntryFieldName_IsValidInTheJournal(t *testing.T) {
	for key, want := range map[string]string{
		"state":      "CORRAL_STATE",
		"unit":       "USER_UNIT",
		"message_id": "MESSAGE_ID",
		"err":        "CORRAL_ERROR",
		"scope.unit": "CORRAL_SCOPE_UNIT",
		"a-b c":      "CORRAL_A_B_C",
		"ö=\n":       "CORRAL____",
		"":           "CORRAL_",
	} {
		assert.Equal(t, want, entryFieldName(key), "%q", key)
	}
}

func TestRecord_ErrorIsPartOfTheMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	log.Warn("record was not saved", "err", errors.New("disk full"))
	got := j.receive()
	assert.Equal(t, "record was not saved: disk full", got["MESSAGE"])
	assert.Equal(t, "disk full", got["CORRAL_ERROR"])
	assert.Equal(t, "4", got["PRIORITY"])
}

// TestRecord_FitsIntoADatagram: a record with more attributes than any other, all of them too long,
// arrives.
func TestRecord_FitsIntoADatagram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	var attrs []any
	for i := range 16 {
		attrs = append(attrs, fmt.Sprintf("f%d", i), strings.Repeat("x", 1<<20))
	}
	log.Info("large", append(attrs, "err", strings.Repeat("y", 1<<20))...)
	got := j.receive()
	assert.Len(t, got["MESSAGE"], maxValue+len("…"))
	assert.Len(t, got["CORRAL_F15"], maxValue+len("…"))
	assert.Len(t, got["CORRAL_ERROR"], maxValue+len("…"))
}

func TestQueue_DoesNotBlockOnAStuckJournald(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	const n = 3 * maxRecords
	for i := range n { // does not block although the records are not read
		log.Info("record", "number", i)
	}
	received, lost := 0, 0
	for received+lost < n { // journald reads again: every record arrives or is counted
		got := j.receive()
		if got["CORRAL_DROPPED"] == "" {
			received++
			continue
		}
		dropped, err := strconv.Atoi(got["CORRAL_DROPPED"])
		require.NoError(t, err)
		lost += dropped
	}
	assert.Equal(t, n, received+lost)
	assert.GreaterOrEqual(t, received, maxRecords)
	assert.Positive(t, lost)
}

// TestQueue_IsLimitedInBytes: large records fill the queue before there are maxRecords of them.
func TestQueue_IsLimitedInBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, o := openLog(t, path)
	const n = 1024
	for range n { // far more than the queue and the kernel's buffer take
		log.Info("record", "text", strings.Repeat("x", maxValue))
	}
	assert.LessOrEqual(t, o.bytes.Load(), int64(maxBytes))
	assert.Greater(t, o.dropped.Load(), uint64(n/2))
	require.NoError(t, j.conn.Close(), "no later write blocks")
}

func TestClose_OfAStuckJournaldTimesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, o := openLog(t, path)
	for range 2 * maxRecords {
		log.Info("record")
	}
	begin := time.Now()
	o.close()
	assert.Less(t, time.Since(begin), 10*closeTimeout)
	log.Info("after the end")
	require.NoError(t, j.conn.Close(), "no later write blocks")
}

func TestClose_WritesQueuedRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, o := openLog(t, path)
	log.Info("one")
	log.Info("two")
	o.close()
	assert.Equal(t, "one", j.receive()["MESSAGE"])
	assert.Equal(t, "two", j.receive()["MESSAGE"])
	log.Info("after the end")
	o.close()
}

func TestQueue_CountsRecordsLostBeforeJournaldStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	log, o := openLog(t, path)
	log.Info("lost")
	require.Eventually(t, func() bool { return o.dropped.Load() == 1 }, 10*time.Second, time.Millisecond)
	j := listen(t, path)
	log.Info("found")
	assert.Equal(t, "found", j.receive()["MESSAGE"])
	assert.Equal(t, "1", j.receive()["CORRAL_DROPPED"])
}

func TestSocket_ReconnectsAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	log.Info("one")
	assert.Equal(t, "one", j.receive()["MESSAGE"])
	require.NoError(t, j.conn.Close())
	require.NoError(t, os.Remove(path))
	j = listen(t, path)
	log.Info("two")
	assert.Equal(t, "two", j.receive()["MESSAGE"], "no record is lost when the connection breaks")
}

// TestSocket_WaitsForJournald: while the queue of journald's socket is full of the records of other
// processes, the kernel reports our socket as not writable, and as writable once journald has read.
// An unconnected socket is always writable (decision 31): the writing goroutine, which the Go
// runtime resumes whenever its socket is writable, would use a CPU of its own until journald reads.
func TestSocket_WaitsForJournald(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	s := &socket{path: path}
	_, err := s.Write([]byte("MESSAGE=one\n"))
	require.NoError(t, err)
	assert.True(t, isWritable(t, s.conn))
	fill(t, path)
	j.receive()   // our own record
	fill(t, path) // takes its place
	assert.False(t, isWritable(t, s.conn))
	unconnected, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = unconnected.Close() })
	assert.True(t, isWritable(t, unconnected), "the kernel has changed: see decision 31")

	written := make(chan error, 1)
	go func() {
		_, err := s.Write([]byte("MESSAGE=two\n"))
		written <- err
	}()
	for received := ""; received != "two"; {
		received = j.receive()["MESSAGE"]
	}
	require.NoError(t, <-written)
}

// fill sends datagrams of other senders to a socket until it accepts no more.
func fill(t *testing.T, path string) {
	t.Helper()
	for sent := true; sent; { // each sender can send a part of them, because its own buffer is limited too
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		sent = false
		for unix.Sendto(fd, []byte("MESSAGE=other\n"), 0, &unix.SockaddrUnix{Name: path}) == nil {
			sent = true
		}
	}
}

// isWritable returns what poll(2) returns.
func isWritable(t *testing.T, conn *net.UnixConn) bool {
	t.Helper()
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	fds := []unix.PollFd{{Events: unix.POLLOUT}}
	require.NoError(t, raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, err = unix.Poll(fds, 0)
	}))
	require.NoError(t, err)
	return fds[0].Revents&unix.POLLOUT != 0
}

func TestConsole_IsReadable(t *testing.T) {
	var b bytes.Buffer
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	l := &Log{level: level}
	o := newOutput("corrald", encodeLine, &b)
	l.out.Store(o)
	log := slog.New(l.Handler())
	log.Info("ready", "message_id", DaemonStarted)
	log.Warn("cannot watch", "err", errors.New("no bus"), "session", "shop", "dir", "/a b", "empty", "")
	log.Error("bad\x1b[31m\nname", "title", "\x1b]2;x\a")
	log.Debug("detail", "n", 1)
	o.close()
	assert.Equal(t, `corrald: ready
corrald: warning: cannot watch: no bus (session=shop dir="/a b" empty="")
corrald: error: bad [31m name (title="\x1b]2;x\a")
corrald: debug: detail (n=1)
`, b.String())
}

func TestTarget_AutoDependsOnStandardError(t *testing.T) {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(2, &st)) // a file or pipe, which go test reads
	for stream, isJournal := range map[string]bool{
		"":                                     false,
		"1:2":                                  false, // inherited from a service
		"invalid":                              false,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino):   true,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		l := New(new(slog.LevelVar))
		want := Console
		if isJournal {
			want = Journal
		}
		require.NotNil(t, l.out.Load())
		assert.Same(t, l.outputs[want], l.out.Load(), "JOURNAL_STREAM=%s", stream)
		assert.Equal(t, Auto, l.Target())
		l.Close()
	}
}

func TestHasReader_ByKindOfFile(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	assert.True(t, hasReader(w))
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	require.NoError(t, err)
	assert.False(t, hasReader(null))
	require.NoError(t, null.Close())
	assert.False(t, hasReader(null))
}

func TestMessageID_IsValidAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{
		SessionStateChanged, DaemonStarted, DaemonStopped, SessionAdopted, RecordDamaged, RecordNotSaved,
	} {
		assert.Regexp(t, `^[0-9a-f]{32}$`, id)
		assert.False(t, seen[id])
		seen[id] = true
	}
}

func TestHandler_SupportsConcurrentWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := listen(t, path)
	log, _ := openLog(t, path)
	base := log.With("a", 1, "b", 2, "c", 3)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 20 {
				base.Info("record", "key", fmt.Sprint(i, "-", k))
			}
		})
	}
	seen := map[string]bool{}
	for range 8 * 20 {
		seen[j.receive()["CORRAL_KEY"]] = true
	}
	wg.Wait()
	assert.Len(t, seen, 8*20, "no record has the attributes of another one")
}

func FuzzEncode(f *testing.F) {
	f.Add("message", "key", "value\nwith lines")
	f.Add("", "=", "\xff\x00")
	f.Add("a\nb", "unit", strings.Repeat("ä", maxValue))
	f.Fuzz(func(t *testing.T, msg, key, value string) {
		fields := appendAttr(nil, "", slog.String(key, value))
		b := encodeEntry("corrald", slog.LevelInfo, msg, fields)
		entry, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(entry) != 3+len(fields) || len(fields) > 0 && entry[entryFieldName(key)] != truncate(value) {
			t.Fatalf("%q, %q, %q became %q", msg, key, value, entry)
		}
		line := encodeLine("corrald", slog.LevelInfo, msg, fields)
		if strings.Count(string(line), "\n") != 1 {
			t.Fatalf("%q is not one line", line)
		}
	})
}
