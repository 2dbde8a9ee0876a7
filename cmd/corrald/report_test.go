package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestReport_TranslatesHookPayloads runs corralctl report with the payloads that an agent passes to
// its hooks.
func TestReport_TranslatesHookPayloads(t *testing.T) {
	d := startDaemon(t)
	ctl := testbed.Programs(t).Corralctl
	pass, open := d.gate(t, "on")
	hook := func(payload string) string {
		return "echo '" + payload + "' | " + ctl + " report --from claude >>" + d.dir + "/out 2>&1; echo $? >>" + d.dir +
			"/out; "
	}
	s := d.run(t, "asks",
		hook(`{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"echo $(touch pwned)"}}`)+pass+"; "+
			hook(`{"hook_event_name":"UserPromptSubmit"}`)+hook("no JSON")+hook("")+"touch "+d.dir+"/over; exec sleep 1000")
	p := s.waitAttention("permission", "waiting")
	assert.Equal(t, "Bash: echo $(touch pwned)", p.text("AttentionMessage"))
	assert.Equal(t, "report", p.text("AttentionSource"))
	open()
	s.waitAttention("", "working")
	testbed.WaitFile(t, d.dir+"/over", nil)
	assert.Equal(t, "0\n0\n0\n0\n", readFile(t, d.dir+"/out"), "it prints nothing and always succeeds")
	assert.NoFileExists(t, d.dir+"/pwned")
}

// TestReport_IsKeptWhileNoDaemonAnswers: what an agent reports while the daemon is away, or hangs,
// counts afterwards. A question that was answered meanwhile is over.
func TestReport_IsKeptWhileNoDaemonAnswers(t *testing.T) {
	for name, row := range map[string]struct{ before, meanwhile, activity, attention, message string }{
		"a question was answered": {"waiting --reason=permission --message=May.I", "working", "working", "", ""},
		"a turn has ended":        {"working", "idle --reason=turn-ended", "idle", "turn-ended", ""},
		"a question was asked": {"working", "working; $ctl report waiting --message='Which $(port)?'",
			"waiting", "question", "Which $(port)?"},
	} {
		for how, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
			t.Run(name+", "+how, func(t *testing.T) {
				d := startDaemon(t)
				pass, open := d.gate(t, "on")
				s := d.run(t, "shop", "ctl="+testbed.Programs(t).Corralctl+"; $ctl report "+row.before+"; "+pass+
					"; $ctl report "+row.meanwhile+"; touch "+d.dir+"/over; exec sleep 1000")
				s.wait("the first report", func(p properties) bool {
					return p.text("AttentionSource") == "report"
				})
				if signal == syscall.SIGKILL {
					d.kill(signal)
				} else {
					require.NoError(t, d.process.Process.Signal(signal))
				}
				open()
				testbed.WaitFile(t, d.dir+"/over", nil)
				if signal == syscall.SIGKILL {
					d.launch()
				} else {
					require.NoError(t, d.process.Process.Signal(syscall.SIGCONT))
				}
				p := s.wait("the last report", func(p properties) bool { return p.text("Activity") == row.activity })
				assert.Equal(t, []string{row.attention, row.message}, []string{p.text("Attention"), p.text("AttentionMessage")})
				assert.NoFileExists(t, d.runtimeDir("shop")+"/report")
			})
		}
	}
}

// TestReport_FromAnotherSessionIsDropped checks that a report from a process of another session is
// dropped and logged: an agent's background daemon may serve the conversations of other sessions,
// with their environment.
func TestReport_FromAnotherSessionIsDropped(t *testing.T) {
	d := startDaemon(t)
	ctl := testbed.Programs(t).Corralctl
	mine := d.run(t, "mine", "exec sleep 1000")
	mine.waitState("running")
	report := "CORRAL_SESSION=mine " + ctl + " report waiting --reason=permission; "
	other := d.run(t, "other", report+report+"touch "+d.dir+"/over; exec sleep 1000")
	testbed.WaitFile(t, d.dir+"/over", nil)
	assert.Empty(t, mine.properties().text("Attention"))
	assert.Empty(t, other.properties().text("Attention"))
	assert.Equal(t, 1, strings.Count(d.log.String(), "dropped a status report of a process outside of the session"),
		"the log entry is rate-limited")

	var explanations []dbusapi.Explanation
	require.NoError(t, d.call(dbusapi.SessionPath("mine"), dbusapi.SessionInterface+".Explain", nil, &explanations))
	assert.True(t, slices.ContainsFunc(explanations, func(e dbusapi.Explanation) bool {
		return strings.Contains(fmt.Sprint(e), `rejected: it came from a process of session "other"`)
	}), "%v", explanations)
}

// TestReport_IsFast measures corralctl report from start to exit, with a daemon that handles the
// report and without one.
func TestReport_IsFast(t *testing.T) {
	d := startDaemon(t)
	const runs = 100
	script := `begin=${EPOCHREALTIME/./}; echo '{"hook_event_name":"Stop"}' | ` +
		testbed.Programs(t).Corralctl + ` report --from claude; echo $? $((${EPOCHREALTIME/./} - begin)) >>"$0.new"`
	for name, signal := range map[string]syscall.Signal{"with a daemon": 0, "without one": syscall.SIGKILL} {
		pass, open := d.gate(t, "go "+name)
		id := strings.ReplaceAll(name, " ", "-")
		file := d.dir + "/" + id
		s := d.create(t, id,
			spec{"Command": []string{"bash", "-c", strings.ReplaceAll(pass, "<", `<"`) + `"; for i in {1..` +
				fmt.Sprint(runs) + `}; do ` + script + `; done; mv "$0.new" "$0"; exec sleep 1000`, file}})
		s.waitState("running")
		if signal != 0 {
			d.kill(signal)
		}
		open()
		var took []time.Duration
		for line := range strings.Lines(string(testbed.WaitFile(t, file, nil))) {
			var status, micros int
			_, err := fmt.Sscan(line, &status, &micros)
			require.NoError(t, err)
			assert.Zero(t, status)
			took = append(took, time.Duration(micros)*time.Microsecond)
		}
		require.Len(t, took, runs)
		slices.Sort(took)
		t.Logf("%s: median %v, second slowest of 100: %v", name, took[runs/2], took[runs-2])
		assert.Less(t, took[0], 20*time.Millisecond, "the fastest run, which did not wait for a CPU")
		if signal != 0 {
			d.launch()
		}
	}
}
