package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/testbed"
)

// terminalWriter is a session whose agent writes to its terminal what the test passes to it.
type terminalWriter struct {
	*testSession
	pipe *os.File
}

// copyProgram is its program; the argument is the path of a FIFO. It sets its terminal to raw mode,
// as full-screen programs do.
const copyProgram = `import os, sys, tty
tty.setraw(0)
pipe = os.open(sys.argv[1], os.O_RDONLY)
while piece := os.read(pipe, 1 << 16):
    while piece: piece = piece[os.write(1, piece):]
`

// startWriter starts such a session.
func (d *corrald) startWriter(t *testing.T, id string) *terminalWriter {
	t.Helper()
	path := d.pipe(t, id)
	return d.create(t, id, spec{"Command": []string{"python3", "-c", copyProgram, path}}).openWriter(path)
}

func (d *corrald) pipe(t *testing.T, id string) (path string) {
	t.Helper()
	path = filepath.Join(d.dir, id+".pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}

func (s *testSession) openWriter(path string) *terminalWriter {
	s.t.Helper()
	s.waitState("running")
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = pipe.Close() })
	return &terminalWriter{s, pipe}
}

func (s *terminalWriter) write(text string) {
	s.t.Helper()
	_, err := s.pipe.WriteString(text)
	require.NoError(s.t, err)
}

// waitStatus waits until the session has these values.
func (s *terminalWriter) waitStatus(activity, attention, message, source string) {
	s.t.Helper()
	want := []string{activity, attention, message, source}
	s.wait(fmt.Sprintf("%q", want), func(p properties) bool {
		return slices.Equal(want, []string{p.text("Activity"), p.text("Attention"), p.text("AttentionMessage"),
			p.text("AttentionSource")})
	})
}

func status(report string) string { return "\x1b]7501;" + report + "\x1b\\" }

func message(text string) string { return ":msg=" + base64.StdEncoding.EncodeToString([]byte(text)) }

// TestProgramStatus_IsPublished checks that what an agent writes about its state to its terminal is
// published, without any configuration.
func TestProgramStatus_IsPublished(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	s := d.startWriter(t, "speaks")
	s.write("hello" + status("state=idle:app=claude"))
	s.waitStatus("idle", "", "", "osc7501")
	s.write(status("state=working"))
	s.waitStatus("working", "", "", "osc7501")
	mark := d.signals.mark()
	s.write("Do you want to proceed?" + status("state=blocked:kind=permission"+message("approve Bash: touch y")))
	s.waitStatus("waiting", "permission", "approve Bash: touch y", "osc7501")
	s.write(status("state=blocked:kind=permission" + message("approve Bash: touch y")))
	s.write(status("state=working"))
	s.waitStatus("working", "", "", "osc7501")
	assert.Equal(t, []string{"permission"}, d.attentionReasons(mark), "once")

	s.write(status("state=working:id=review") + status("state=blocked:kind=auth:id=review"+message("sign in")))
	s.waitStatus("working", "auth", "sign in", "osc7501")
	s.write(status("state=clear:id=review"))
	s.waitStatus("working", "", "", "osc7501")
	s.write(status("state=done" + message("3 files changed")))
	s.waitStatus("idle", "turn-ended", "3 files changed", "osc7501")
	detach := s.attach()
	s.wait("acknowledged", func(p properties) bool {
		return p.text("Attention") == "turn-ended" && p.isTrue("AttentionAcknowledged")
	})
	detach()
	s.write(status("state=error" + message("no network")))
	s.waitStatus("idle", "error", "no network", "osc7501")

	// A later daemon still knows it. The agent's own status supersedes its bell, which applies again
	// once the agent reports nothing.
	d.kill(9)
	d.launch()
	s.waitStatus("idle", "error", "no network", "osc7501")
	s.write("\a")
	testbed.Poll(t, "the bell is among the sources", func() bool { // no signal is sent, because nothing published changes
		return slices.ContainsFunc(s.explained(), func(e dbusapi.Explanation) bool {
			return e.Source == "bell" && e.Subject == "attention"
		})
	})
	s.waitStatus("idle", "error", "no network", "osc7501")
	s.write(status("state=clear"))
	s.waitStatus("waiting", "bell", "", "bell")
	s.write("\x1b]777;notify;Build;is done\a")
	s.waitStatus("waiting", "bell", "Build: is done", "bell")

	var screen string
	require.NoError(t, d.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Capture",
		[]any{uint32(0), uint64(0)}, &screen))
	assert.Contains(t, screen, "Do you want to proceed?")
	assert.NotContains(t, screen, "7501")
}

func (s *terminalWriter) explained() []dbusapi.Explanation {
	s.t.Helper()
	var explanations []dbusapi.Explanation
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Explain", nil, &explanations))
	return explanations
}

// TestProgramStatus_HostileTextIsHarmless checks that nothing that an agent writes is executed,
// that the session continues, and that everything published is valid text.
func TestProgramStatus_HostileTextIsHarmless(t *testing.T) {
	d := startDaemon(t)
	pwned := filepath.Join(d.dir, "pwned")
	attack := "$(touch " + pwned + ")`touch " + pwned + "`#{b:#(touch " + pwned + ")}#(touch " + pwned + ");touch " +
		pwned + "\n\x1b[2J\x1b]0;x\a\x00\xff\xfe\xed\xa0\x80\u202e%s%n"
	s := d.startWriter(t, "hostile")
	texts := []string{attack, strings.Repeat(attack, 20), strings.Repeat("\xff", 3000), strings.Repeat("x", 1<<20),
		"\x00", strings.Repeat("\u202e", 500)}
	for i, text := range texts {
		for _, sequence := range []string{
			status("state=blocked:kind=permission" + message(text)), "\x1b]7501;state=blocked:msg=" + text + "\a",
			"\x1b]7501;" + text + "\x1b\\", "\x1b]7501;id=" + text + ":state=idle\a",
			"\x1b]0;" + text + "\a", "\x1b]2;" + text + "\x1b\\", "\x1bk" + text + "\x1b\\", "\x1b]9;" + text + "\a",
			"\x1b]777;notify;" + text + ";" + text + "\a",
			"\x1b]99;i=" + text + ":p=title;" + text + "\x1b\\", "\x1b]133;" + text + "\a",
			"\x1bPtmux;\x1b\x1b]7501;" + text + "\x1b\\", "\x1b]7501;" + strings.Repeat("a=b:", 1<<12) + "\a",
		} {
			s.write(sequence + "\x18\x1b\\")
		}
		s.write(status("state=blocked:kind=question" + message(fmt.Sprint("still there ", i))))
		s.waitStatus("waiting", "question", fmt.Sprint("still there ", i), "osc7501")
	}
	s.write(status("state=blocked:kind=auth" + message(attack)))
	p := s.wait("asking", func(p properties) bool { return p.text("Attention") == "auth" })
	text := p.text("AttentionMessage")
	assert.Contains(t, text, "$(touch "+pwned+")", "the text is unchanged")
	assert.True(t, utf8.ValidString(text) && len(text) <= shimwire.MaxText &&
		!strings.ContainsAny(text, "\x00\x1b\n\u202e"), "%q", text)
	for _, e := range s.explained() {
		assert.True(t, utf8.ValidString(e.Value) && !strings.Contains(e.Value, "\x00"), "%q", e)
	}
	s.write("\x1b]7501;state=clear\a\x1b]9;" + attack + "\a")
	p = s.wait("in need of attention for its bell", func(p properties) bool { return p.text("Attention") == "bell" })
	assert.True(t, utf8.ValidString(p.text("AttentionMessage")) &&
		!strings.ContainsAny(p.text("AttentionMessage"), "\x00\x1b"), "%q", p)
	s.attach()()
	assert.NoFileExists(t, pwned)
	assert.NotContains(t, d.log.String(), "still there", "an agent's question is not logged")
	assert.Equal(t, "running", s.properties().text("State"))
	signals, _ := d.signals.since(0)
	for _, signal := range signals {
		assert.NotContains(t, bodyText(signal), "touch", "an agent's text is not broadcast")
	}
}

// TestProgramStatus_EndsWithTheLastReport checks that the last report in the stream determines the
// state, however the stream is split into writes, and that no state is published in which the agent
// never was.
func TestProgramStatus_EndsWithTheLastReport(t *testing.T) {
	d := startDaemon(t)
	s := d.startWriter(t, "quick")
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		was := map[string]bool{} // states that the agent had, and the one before its first report
		p := s.properties()
		was[p.text("Activity")+"/"+p.text("Attention")] = true
		mark := d.signals.mark()
		var stream strings.Builder
		last := ""
		for i := range 5 + r.IntN(60) {
			report, is := anyReport(r, i)
			was[is] = true
			last = is
			fmt.Fprintf(&stream, "line %d\r\n%s", i, report)
		}
		const end = "waiting/auth"
		fmt.Fprint(&stream, status("state=blocked:kind=auth"+message(fmt.Sprint("end of ", seed))))
		was[end] = true
		for rest := stream.String(); rest != ""; {
			n := min(1+r.IntN(200), len(rest))
			s.write(rest[:n])
			rest = rest[n:]
		}
		s.waitStatus("waiting", "auth", fmt.Sprint("end of ", seed), "osc7501")
		signals, _ := d.signals.since(mark)
		now := map[string]string{"Activity": p.text("Activity"), "Attention": p.text("Attention")}
		for _, signal := range signals {
			changed, _, ok := sessionChanged(signal, s.id)
			if !ok {
				continue
			}
			for name := range now {
				if v, there := changed[name]; there {
					now[name] = v.Value().(string)
				}
			}
			assert.Contains(t, was, now["Activity"]+"/"+now["Attention"], "seed %d", seed)
		}
		assert.NotEmpty(t, last)
	}
}

// anyReport returns a random report and the resulting state of the agent, as activity/attention.
func anyReport(r *rand.Rand, i int) (report, is string) {
	switch r.IntN(5) {
	case 0:
		return status("state=working:progress=" + fmt.Sprint(i)), "working/"
	case 1:
		return status("state=idle"), "idle/"
	case 2:
		return status("state=done" + message(fmt.Sprint(i))), "idle/turn-ended"
	case 3:
		return status("state=error"), "idle/error"
	}
	return status("state=blocked:kind=permission" + message(fmt.Sprint(i))), "waiting/permission"
}

// TestStatusSources_FollowTheDefinition checks Sources=, the patterns for titles, and
// SetupPattern=, which matches a line of the screen that asks for something.
func TestStatusSources_FollowTheDefinition(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	path := d.pipe(t, "gemini")
	d.write("speaker.py", copyProgram)
	d.write("config/corral/agents/titles.agent", strings.Join([]string{
		"[Agent]", "Command=python3 " + d.dir + "/speaker.py " + path, "[Status]", "Sources=title report bell",
		"TitleReady=^◇", "TitleWorking=^✦", "TitleBlocked=^✋",
		`SetupPattern=Do you trust .*\?`, "ReadyTimeoutSec=300ms",
	}, "\n")+"\n")
	require.NoError(t, d.manager("Reload", nil))
	require.NoError(t, d.createAs("titles", "gemini"))
	s := (&testSession{d, t, "gemini"}).openWriter(path)
	s.write("\x1b]7501;?\a\x1b]0;◇ Ready\a\x1b[2J\x1b[3;1H│ Do you \x1b[3;10Htrust this folder? │\r\n")
	s.waitStatus("waiting", "setup", "Do you trust this folder?", "output")
	s.write("\x1b[2J\x1b]0;✦ Working…\a")
	s.waitStatus("working", "", "", "title")
	s.write(status("state=error"))
	s.write("\x1b]0;✋ Action Required\x1b\\")
	s.waitStatus("waiting", "question", "✋ Action Required", "title")
	var why []string
	for _, e := range s.explained() {
		if e.Subject == "activity" {
			why = append(why, e.Source+" "+e.Value)
		}
	}
	assert.Equal(t, []string{"title waiting", "report nothing", "bell nothing"}, why[:3])
	assert.NotContains(t, why, "osc7501 nothing", "a source that is not in Sources= is not evaluated")
	s.write("\x1b]0;✦ Working…\a\x1b]0;◇ Ready\a")
	s.waitStatus("idle", "turn-ended", "", "title")
}
