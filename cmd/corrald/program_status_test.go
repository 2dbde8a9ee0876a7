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

// speaker is an agent that writes to its terminal what the test hands it.
type speaker struct {
	*subject
	pipe *os.File
}

// copies is its program, with the path of a FIFO. Its terminal is raw, as those of full-screen
// programs are.
const copies = `import os, sys, tty
tty.setraw(0)
pipe = os.open(sys.argv[1], os.O_RDONLY)
while piece := os.read(pipe, 1 << 16):
    while piece: piece = piece[os.write(1, piece):]
`

// speak starts one.
func (d *corrald) speak(t *testing.T, id string) *speaker {
	t.Helper()
	path := d.pipe(t, id)
	return d.create(t, id, spec{"Command": []string{"python3", "-c", copies, path}}).speaks(path)
}

func (d *corrald) pipe(t *testing.T, id string) (path string) {
	t.Helper()
	path = filepath.Join(d.dir, id+".pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}

func (s *subject) speaks(path string) *speaker {
	s.t.Helper()
	s.become("running")
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = pipe.Close() })
	return &speaker{s, pipe}
}

func (s *speaker) say(text string) {
	s.t.Helper()
	_, err := s.pipe.WriteString(text)
	require.NoError(s.t, err)
}

// tells waits until the session is so.
func (s *speaker) tells(activity, attention, message, source string) {
	s.t.Helper()
	want := []string{activity, attention, message, source}
	s.wait(fmt.Sprintf("%q", want), func(f facts) bool {
		return slices.Equal(want, []string{f.text("Activity"), f.text("Attention"), f.text("AttentionMessage"), f.text("AttentionSource")})
	})
}

func status(report string) string { return "\x1b]7501;" + report + "\x1b\\" }

func message(text string) string { return ":msg=" + base64.StdEncoding.EncodeToString([]byte(text)) }

// TestProgramStatus_IsPublished what it does, and nobody had to configure anything.
func TestProgramStatus_IsPublished(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	s := d.speak(t, "speaks")
	s.say("hello" + status("state=idle:app=claude"))
	s.tells("idle", "", "", "osc7501")
	s.say(status("state=working"))
	s.tells("working", "", "", "osc7501")
	mark := d.heard.mark()
	s.say("Do you want to proceed?" + status("state=blocked:kind=permission"+message("approve Bash: touch y")))
	s.tells("waiting", "permission", "approve Bash: touch y", "osc7501")
	s.say(status("state=blocked:kind=permission" + message("approve Bash: touch y")))
	s.say(status("state=working"))
	s.tells("working", "", "", "osc7501")
	assert.Equal(t, []string{"permission"}, d.requested(mark), "once")

	s.say(status("state=working:id=review") + status("state=blocked:kind=auth:id=review"+message("sign in")))
	s.tells("working", "auth", "sign in", "osc7501")
	s.say(status("state=clear:id=review"))
	s.tells("working", "", "", "osc7501")
	s.say(status("state=done" + message("3 files changed")))
	s.tells("idle", "turn-ended", "3 files changed", "osc7501")
	detach := s.attach()
	s.wait("seen", func(f facts) bool { return f.text("Attention") == "turn-ended" && f.yes("AttentionAcknowledged") })
	detach()
	s.say(status("state=error" + message("no network")))
	s.tells("idle", "error", "no network", "osc7501")

	// A daemon that comes later knows it, and the agent's own words are more than its bell's, which
	// counts again when the agent says nothing more.
	d.kill(9)
	d.launch()
	s.tells("idle", "error", "no network", "osc7501")
	s.say("\a")
	testbed.Poll(t, "it has rung", func() bool { // no signal tells of what changes nothing
		return slices.ContainsFunc(s.explained(), func(e dbusapi.Explanation) bool { return e.Source == "bell" && e.Subject == "attention" })
	})
	s.tells("idle", "error", "no network", "osc7501")
	s.say(status("state=clear"))
	s.tells("waiting", "bell", "", "bell")
	s.say("\x1b]777;notify;Build;is done\a")
	s.tells("waiting", "bell", "Build: is done", "bell")

	var screen string
	require.NoError(t, d.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Capture", []any{uint32(0), uint64(0)}, &screen))
	assert.Contains(t, screen, "Do you want to proceed?")
	assert.NotContains(t, screen, "7501")
}

func (s *speaker) explained() []dbusapi.Explanation {
	s.t.Helper()
	var told []dbusapi.Explanation
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Explain", nil, &told))
	return told
}

// TestProgramStatus_HostileTextIsHarmless: whatever an agent writes, nothing of it is executed, the
// session lives on, and what clients are told is text.
func TestProgramStatus_HostileTextIsHarmless(t *testing.T) {
	d := startDaemon(t)
	pwned := filepath.Join(d.dir, "pwned")
	attack := "$(touch " + pwned + ")`touch " + pwned + "`#{b:#(touch " + pwned + ")}#(touch " + pwned + ");touch " + pwned + "\n\x1b[2J\x1b]0;x\a\x00\xff\xfe\xed\xa0\x80\u202e%s%n"
	s := d.speak(t, "hostile")
	texts := []string{attack, strings.Repeat(attack, 20), strings.Repeat("\xff", 3000), strings.Repeat("x", 1<<20), "\x00", strings.Repeat("\u202e", 500)}
	for i, text := range texts {
		for _, told := range []string{
			status("state=blocked:kind=permission" + message(text)), "\x1b]7501;state=blocked:msg=" + text + "\a", "\x1b]7501;" + text + "\x1b\\", "\x1b]7501;id=" + text + ":state=idle\a",
			"\x1b]0;" + text + "\a", "\x1b]2;" + text + "\x1b\\", "\x1bk" + text + "\x1b\\", "\x1b]9;" + text + "\a", "\x1b]777;notify;" + text + ";" + text + "\a",
			"\x1b]99;i=" + text + ":p=title;" + text + "\x1b\\", "\x1b]133;" + text + "\a", "\x1bPtmux;\x1b\x1b]7501;" + text + "\x1b\\", "\x1b]7501;" + strings.Repeat("a=b:", 1<<12) + "\a",
		} {
			s.say(told + "\x18\x1b\\")
		}
		s.say(status("state=blocked:kind=question" + message(fmt.Sprint("still there ", i))))
		s.tells("waiting", "question", fmt.Sprint("still there ", i), "osc7501")
	}
	s.say(status("state=blocked:kind=auth" + message(attack)))
	f := s.wait("asking", func(f facts) bool { return f.text("Attention") == "auth" })
	text := f.text("AttentionMessage")
	assert.Contains(t, text, "$(touch "+pwned+")", "as it is: it is only text")
	assert.True(t, utf8.ValidString(text) && len(text) <= shimwire.MaxText && !strings.ContainsAny(text, "\x00\x1b\n\u202e"), "%q", text)
	for _, told := range s.explained() {
		assert.True(t, utf8.ValidString(told.Value) && !strings.Contains(told.Value, "\x00"), "%q", told)
	}
	s.say("\x1b]7501;state=clear\a\x1b]9;" + attack + "\a")
	f = s.wait("ringing", func(f facts) bool { return f.text("Attention") == "bell" })
	assert.True(t, utf8.ValidString(f.text("AttentionMessage")) && !strings.ContainsAny(f.text("AttentionMessage"), "\x00\x1b"), "%q", f)
	s.attach()()
	assert.NoFileExists(t, pwned)
	assert.NotContains(t, d.log.String(), "still there", "what an agent asks is not logged")
	assert.Equal(t, "running", s.facts().text("State"))
	signals, _ := d.heard.since(0)
	for _, signal := range signals {
		assert.NotContains(t, variantText(signal), "touch", "nor broadcast")
	}
}

// TestProgramStatus_EndsWithTheLastReport, however the stream falls into pieces, and no state is
// told that the agent was not in.
func TestProgramStatus_EndsWithTheLastReport(t *testing.T) {
	d := startDaemon(t)
	s := d.speak(t, "quick")
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		was := map[string]bool{} // what the agent was, and what it may be before it has said anything
		f := s.facts()
		was[f.text("Activity")+"/"+f.text("Attention")] = true
		mark := d.heard.mark()
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
			s.say(rest[:n])
			rest = rest[n:]
		}
		s.tells("waiting", "auth", fmt.Sprint("end of ", seed), "osc7501")
		signals, _ := d.heard.since(mark)
		now := map[string]string{"Activity": f.text("Activity"), "Attention": f.text("Attention")}
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

// anyReport returns a report of the program itself, or of a part of it that is told nobody, and
// what the program is by it.
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

// TestStatusSources_FollowTheDefinition, what titles mean, and which line of the screen asks for
// something.
func TestStatusSources_FollowTheDefinition(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	path := d.pipe(t, "gemini")
	d.write("speaker.py", copies)
	d.write("config/corral/agents/titles.agent", strings.Join([]string{
		"[Agent]", "Command=python3 " + d.dir + "/speaker.py " + path, "[Status]", "Sources=title report bell", "TitleReady=^◇", "TitleWorking=^✦", "TitleBlocked=^✋",
		`SetupPattern=Do you trust .*\?`, "ReadyTimeoutSec=300ms",
	}, "\n")+"\n")
	require.NoError(t, d.manager("Reload", nil))
	require.NoError(t, d.createAs("titles", "gemini"))
	s := (&subject{d, t, "gemini"}).speaks(path)
	s.say("\x1b]7501;?\a\x1b]0;◇ Ready\a\x1b[2J\x1b[3;1H│ Do you \x1b[3;10Htrust this folder? │\r\n")
	s.tells("waiting", "setup", "Do you trust this folder?", "output")
	s.say("\x1b[2J\x1b]0;✦ Working…\a")
	s.tells("working", "", "", "title")
	s.say(status("state=error"))
	s.say("\x1b]0;✋ Action Required\x1b\\")
	s.tells("waiting", "question", "✋ Action Required", "title")
	var why []string
	for _, told := range s.explained() {
		if told.Subject == "activity" {
			why = append(why, told.Source+" "+told.Value)
		}
	}
	assert.Equal(t, []string{"title waiting", "report nothing", "bell nothing"}, why[:3])
	assert.NotContains(t, why, "osc7501 nothing", "who is not heard is not listened to")
	s.say("\x1b]0;✦ Working…\a\x1b]0;◇ Ready\a")
	s.tells("idle", "turn-ended", "", "title")
}
