package main

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

func TestParseNotification_ReadsKnownVariables(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       notification
	}{
		{"nothing", "", notification{}},
		{"ready", "READY=1", notification{isReady: true}},
		{"not ready", "READY=0", notification{}},
		{"a status", "STATUS=indexing 3 of 4", notification{status: "indexing 3 of 4", hasStatus: true}},
		{"an empty status", "STATUS=", notification{hasStatus: true}},
		{
			"several lines", "READY=1\nSTATUS=here = there\n",
			notification{isReady: true, status: "here = there", hasStatus: true},
		},
		{"a name twice", "STATUS=a\nSTATUS=b", notification{status: "b", hasStatus: true}},
		{"variables of others", "MAINPID=1\nWATCHDOG=1\nBARRIER=1\nREADY", notification{}},
		{
			"it waits", "X_CORRAL_ACTIVITY=waiting\nX_CORRAL_REASON=question",
			notification{activity: "waiting", hasActivity: true, reason: "question", hasReason: true},
		},
		{"unknown values", "X_CORRAL_ACTIVITY=dreaming\nX_CORRAL_REASON=failed", notification{}},
		{"not UTF-8", "STATUS=\xff\x00", notification{status: "\uFFFD", hasStatus: true}},
		{
			"control characters", "STATUS=\u009b2J\u202eindexing\u200b \x1b[m",
			notification{status: "2Jindexing [m", hasStatus: true},
		},
	} {
		assert.Equal(t, row.want, parseNotification([]byte(row.text)), row.name)
	}
}

// FuzzNotification checks that the decoded status is valid and bounded, and that activity and
// reason are known values.
func FuzzNotification(f *testing.F) {
	for _, seed := range []string{
		"READY=1\nSTATUS=up", "X_CORRAL_ACTIVITY=waiting\nX_CORRAL_REASON=auth\nSTATUS=\xff", "BARRIER=1",
		"=\n\n=READY=1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := parseNotification(b)
		assert.True(t, utf8.ValidString(n.status) && !strings.Contains(n.status, "\x00") && len(n.status) <= shimwire.MaxText)
		if n.hasActivity {
			assert.Contains(t, word.Activities, n.activity)
		}
		if n.hasReason {
			assert.Contains(t, shimwire.Reasons, n.reason)
		}
	})
}

func (ts *testSession) withNotify() *testSession {
	ts.spec.Notify = ts.dir + "/run/notify"
	return ts
}

// TestNotifySocket_AcceptsSystemdNotify uses systemd-notify, which waits until the descriptor of
// its BARRIER=1 is closed, for at most five seconds.
func TestNotifySocket_AcceptsSystemdNotify(t *testing.T) {
	begun := time.Now()
	ts := newTestSession(t, "sh", "-c", `read a; systemd-notify --ready --status="one" && echo said; read a
		systemd-notify --status="which one?" X_CORRAL_ACTIVITY=waiting X_CORRAL_REASON=question; read a; systemd-notify X_CORRAL_ACTIVITY=working; read a`).withNotify()
	ts.spec.Env = append(ts.spec.Env, "NOTIFY_SOCKET=/somebody/elses")
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	assert.False(t, d.expect(shimwire.Ready).Since.Before(begun.Truncate(time.Microsecond)))
	one := d.expect(shimwire.StatusReport)
	assert.Equal(t, "one", one.Text)
	assert.Equal(t, word.Notify, one.Source)
	assert.Empty(t, one.Activity)
	s.waitFor("said")
	assert.Less(t, time.Since(begun), 5*time.Second)
	s.typeKeys("\n")
	asks := d.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"waiting", "question", "which one?"}, []string{asks.Activity, asks.Reason, asks.Text})
	assert.Greater(t, asks.Seq, one.Seq)

	late := ts.connect()
	assert.NotZero(t, late.expect(shimwire.Ready).Since)
	again := late.expect(shimwire.StatusReport)
	assert.InDelta(t, asks.SinceMonotonic, again.SinceMonotonic, float64(time.Second), "computed for each message")
	again.SinceMonotonic = asks.SinceMonotonic
	assert.Equal(t, asks, again, "repeated for later connections")
	s.typeKeys("\n")
	goesOn := late.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"working", "", "which one?"}, []string{goesOn.Activity, goesOn.Reason, goesOn.Text})
	s.typeKeys("\n")
	require.Zero(t, s.wait())
	assert.NoFileExists(t, ts.spec.Notify)
}

func TestNotifySocket_IsOptional(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `echo "<$NOTIFY_SOCKET>"`)
	s := ts.startShim()
	s.waitFor("<>")
	s.wait()
}

// TestNotifySocket_ThrottlesReports checks that a flood of notifications causes the first and the
// last report, and few in between.
func TestNotifySocket_ThrottlesReports(t *testing.T) {
	const flood = `import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(os.environ["NOTIFY_SOCKET"])
input()
for i in range(5000): s.send(b"STATUS=%d" % i)
input()`
	ts := newTestSession(t, "python3", "-c", flood).withNotify()
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	reports := 1
	for d.expect(shimwire.StatusReport).Text != "4999" {
		reports++
	}
	assert.LessOrEqual(t, reports, 2*reportBurst)
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// TestStatusReport_IsRepeatedForASecondQuestion checks that the same question is reported twice:
// the user may have answered the first one.
func TestStatusReport_IsRepeatedForASecondQuestion(t *testing.T) {
	for name, script := range map[string]string{
		"by sd_notify":                       `for i in 1 2; do systemd-notify X_CORRAL_ACTIVITY=waiting X_CORRAL_REASON=question; done; read a`,
		"by sd_notify, without a reason":     `for i in 1 2; do systemd-notify X_CORRAL_ACTIVITY=waiting; done; read a`,
		"by a bell, without silence":         `for i in 1 2; do printf '\a'; for j in 1 2 3 4 5 6 7; do printf .; sleep 0.2; done; done; read a`,
		"by a notification, without silence": `for i in 1 2; do printf '\033]9;come\a'; for j in 1 2 3 4 5 6 7; do printf .; sleep 0.2; done; done; read a`,
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSession(t, "sh", "-c", "read a; "+script).withNotify()
			ts.spec.IdleAfter = time.Minute
			s := ts.startShim()
			d := ts.connect()
			s.typeKeys("\n")
			one, two := d.expect(shimwire.StatusReport), d.expect(shimwire.StatusReport)
			assert.NotEmpty(t, one.Activity+one.Reason)
			assert.Equal(t, []string{one.Source, one.Activity, one.Reason, one.Text},
				[]string{two.Source, two.Activity, two.Reason, two.Text})
			assert.Greater(t, two.Seq, one.Seq)
			s.typeKeys("\n")
			require.Zero(t, s.wait())
		})
	}
}

// TestBell_LastsUntilTheAgentContinues checks that a bell is reported once and is in effect until
// the agent continues.
func TestBell_LastsUntilTheAgentContinues(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; read a; printf 'ding\a'; printf '\a\a'; read a; printf '\033]0;a title\a'; read a; printf '\a'; read a`)
	ts.spec.IdleAfter = bellTail + bellTail/5 // output after a silence must not count as the bell's tail
	s := ts.startShim()
	d := ts.connect()
	next := func(kind shimwire.Kind) shimwire.Message {
		t.Helper()
		m := d.next()
		require.Equal(t, kind, m.Kind)
		return m
	}
	next(shimwire.Idle)
	s.typeKeys("\n")
	next(shimwire.Working)
	rings := next(shimwire.StatusReport)
	assert.Equal(t, []string{word.Bell, "bell", ""}, []string{rings.Source, rings.Reason, rings.Activity})
	next(shimwire.Idle)

	late := ts.connect()
	again := late.expect(shimwire.StatusReport)
	again.SinceMonotonic = rings.SinceMonotonic // it is computed for each message
	assert.Equal(t, rings, again)

	s.typeKeys("\n")
	next(shimwire.Working)
	over := next(shimwire.StatusReport)
	assert.Equal(t, []string{word.Bell, ""}, []string{over.Source, over.Reason},
		"the bell that ends a title does not ring")
	next(shimwire.Idle)
	s.typeKeys("\n")
	next(shimwire.Working)
	assert.Equal(t, "bell", next(shimwire.StatusReport).Reason)
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// A program may send a notification each second for days.
func TestNotifySocket_DoesNotAllocate(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	n := &notifier{cgroup: []byte(group)}
	pid, datagram := int32(os.Getpid()), []byte("READY=1\nWATCHDOG=1\nX_CORRAL_ACTIVITY=working\n")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if !n.hasMember(pid) || parseNotification(datagram).activity != "working" {
			t.Error("the notification is rejected")
		}
	}))
	n.cgroup = append(n.cgroup, "/below"...)
	assert.False(t, n.hasMember(pid))
	n.cgroup = []byte("/")
	assert.True(t, n.hasMember(pid), "every process is below the root")
	assert.False(t, n.hasMember(1<<22+1), "no such process")
	n.cgroup = nil
	assert.False(t, n.hasMember(pid), "the agent's control group is not known")
}
