package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestParseStatus(t *testing.T) {
	for _, row := range []struct {
		name, body string
		want       statusRecord
	}{
		{"idle", "state=idle", statusRecord{state: "idle"}},
		{
			"working, with a message that is ignored", "state=working:progress=40:app=make:msg=" + encoded("compiling"),
			statusRecord{state: "working"},
		},
		{
			"blocked", "state=blocked:kind=permission:app=claude:msg=" + encoded("approve Bash: touch y"),
			statusRecord{state: "blocked", kind: "permission", text: "approve Bash: touch y"},
		},
		{"blocked without a kind", "state=blocked", statusRecord{state: "blocked"}},
		{"blocked with an unknown kind", "state=blocked:kind=weather", statusRecord{state: "blocked"}},
		{"a kind of another state", "state=error:kind=auth", statusRecord{state: "error"}},
		{"a title without a message", "state=done:title=" + encoded("Tests"), statusRecord{state: "done", text: "Tests"}},
		{
			"a message and a title", "state=done:msg=" + encoded("3 pass") + ":title=" + encoded("Tests"),
			statusRecord{state: "done", text: "3 pass"},
		},
		{"a key twice", "state=idle:state=working", statusRecord{state: "working"}},
		{"unknown keys and malformed pairs", "version=3:state=idle::=:x:UPPER=1:a b=c", statusRecord{state: "idle"}},
		{
			"blanks around keys and values", " state = blocked :\tkind=auth\t: id = a/b ",
			statusRecord{id: "a/b", state: "blocked", kind: "auth"},
		},
		{"a key of 16 bytes", "state=idle:" + strings.Repeat("k", 16) + "=1", statusRecord{state: "idle"}},
		{"a long pair without a value", "state=idle:" + strings.Repeat("k", 17), statusRecord{state: "idle"}},
		{"an application name of 32 bytes", "state=idle:app=" + strings.Repeat("a", 32), statusRecord{state: "idle"}},
		{"an application name with invalid characters", "state=idle:app=a/b", statusRecord{state: "idle"}},
		{
			"an empty message and a title", "state=done:msg=:title=" + encoded("Tests"),
			statusRecord{state: "done", text: "Tests"},
		},
		{
			"the longest ID", "state=idle:id=" + strings.Repeat("abcdefghijklmno/", 7) + "abcdefghijklmnop",
			statusRecord{id: strings.Repeat("abcdefghijklmno/", 7) + "abcdefghijklmnop", state: "idle"},
		},
		{"a part", "state=working:id=agents/review.2", statusRecord{id: "agents/review.2", state: "working"}},
		{"padding left out", "state=done:msg=aGk", statusRecord{state: "done", text: "hi"}},
		{"invalid base64", "state=blocked:kind=auth:msg=a=b=", statusRecord{state: "blocked", kind: "auth"}},
		{"invalid characters in a value", "state=blocked:msg=\x01\x02", statusRecord{state: "blocked"}},
		{
			"a text of escape sequences", "state=blocked:msg=" + encoded("\x1b]0;pwned\a\x1b[2J\nok?\x00"),
			statusRecord{state: "blocked", text: "]0;pwned [2J ok?"},
		},
		{
			"a text that is not UTF-8", "state=blocked:msg=" + encoded("a\xff\xfeb"),
			statusRecord{state: "blocked", text: "a\uFFFDb"},
		},
		{
			"a text with a bidirectional override", "state=blocked:msg=" + encoded("rm \u202efdp.txt"),
			statusRecord{state: "blocked", text: "rm fdp.txt"},
		},
		{
			"a title with invisible characters", "state=done:title=" + encoded("\u2066a\u200bb\u00ad\ufeffc\u2069"),
			statusRecord{state: "done", text: "abc"},
		},
	} {
		got, ok := parseStatus([]byte(row.body), nil)
		assert.True(t, ok, row.name)
		assert.Equal(t, row.want, got, row.name)
	}
}

// TestParseStatus_DiscardsInvalidReports checks that a report whose ID is invalid does not change
// the root, and that limits apply also to a pair that a later one replaces.
// TestParseStatus_EndsTurnsWithBackgroundWork: the message shows that the turn has ended.
func TestParseStatus_EndsTurnsWithBackgroundWork(t *testing.T) {
	background := regexp.MustCompile("still running$")
	for body, want := range map[string]statusRecord{
		"state=working:msg=" + encoded("1 shell still running"): {state: "done", text: "1 shell still running"},
		"state=working:msg=" + encoded("runs the tests"):        {state: "working"},
		"state=working": {state: "working"},
		"state=idle:msg=" + encoded("1 shell still running"): {state: "idle"},
	} {
		r, ok := parseStatus([]byte(body), background)
		assert.True(t, ok)
		assert.Equal(t, want, r, body)
	}
}

func TestParseStatus_DiscardsInvalidReports(t *testing.T) {
	for _, body := range []string{
		"", ":", "state", "state=", "state=sleeping", "state=IDLE", "STATE=idle", "id=a", "state=idle:id=",
		"state=idle:id=/", "state=idle:id=a//b", "state=idle:id=a/", "state=idle:id=a,b",
		"state=clear:id=a!", "state=clear:id=a b", "state=clear:id=a//b:id=a",
		"state=idle:id=" + strings.Repeat("x", 33), "state=idle:id=" + strings.Repeat("a/", 8) + "a",
		"state=idle:id=" + strings.Repeat(strings.Repeat("x", 31)+"/", 4) + "x",
		"state=idle:" + strings.Repeat("k", 17) + "=1", "state=idle:" + strings.Repeat("K", 17) + "=!",
		"state=idle:app=" + strings.Repeat("a", 33), "state=idle:app=" + strings.Repeat("a", 33) + ":app=b",
	} {
		_, ok := parseStatus([]byte(body), nil)
		assert.False(t, ok, "%q", body)
	}
}

// A shim may run for weeks while its agent draws a spinner.
func TestStatusReport_DoesNotAllocateForFrequentUpdates(t *testing.T) {
	spec := shimwire.Spec{TitleWorking: "^w"}
	s := &shim{spec: spec, titleStatus: newTitleStatus(&spec)}
	s.timers = &timers{fd: -1}
	s.scanner.init(s.handleOSC, s.resetProgramStatus)
	const format = "\x1b]0;w 0 of the work\a\x1b]7501;state=working:app=x:progress=40:title=%s\x1b\\"
	title, n := fmt.Appendf(nil, format, encoded("Tests")), byte(0)
	output := slices.Clone(title)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		copy(output, title)
		n++
		output[6] = 'a' + n%26
		s.scanner.scan(output)
	}))
	assert.Equal(t, "working", s.reports[sourceTitle].activity)
	assert.Equal(t, "working", s.reports[sourceOSC7501].activity)
}

func TestParseStatus_TruncatesLongTexts(t *testing.T) {
	for _, row := range []struct {
		key, text string
		want      int // bytes
	}{
		{"msg", strings.Repeat("x", maxStatusMessage), maxStatusMessage},
		{"msg", strings.Repeat("é", 1300), maxStatusMessage},
		{"msg", "x" + strings.Repeat("é", 1300), maxStatusMessage - 1},
		{"title", strings.Repeat("x", maxStatusTitle), maxStatusTitle},
		{"title", strings.Repeat("é", 100), maxStatusTitle},
		{"title", "x" + strings.Repeat("é", 100), maxStatusTitle - 1},
		{"title", strings.Repeat("漢", 100), maxStatusTitle},
	} {
		r, ok := parseStatus([]byte("state=blocked:"+row.key+"="+encoded(row.text)), nil)
		require.True(t, ok)
		assert.Len(t, r.text, row.want, "%s %.10q…", row.key, row.text)
		assert.True(t, strings.HasPrefix(row.text, r.text))
	}
}

// FuzzParseStatus checks that what is accepted of a report is valid and bounded, that blanks around
// it change nothing, and that reports written by a library are accepted.
func FuzzParseStatus(f *testing.F) {
	for _, seed := range []string{
		"state=idle", "state=blocked:kind=permission:msg=aGk=", "?", "state=clear:id=a/b",
		"state=done:title=/w==:msg=//8=", " state = blocked :\tkind=auth : id = a ", "state=clear:id=a!:id=a",
		"state=idle:aaaaaaaaaaaaaaaaa=1", "state=blocked:kind=x:app=a/b:progress=101", "state=done:msg=:title=aGk",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ok := parseStatus(body, nil)
		if ok {
			assert.True(t, utf8.ValidString(r.text) && len(r.text) <= shimwire.MaxText)
			assert.NotContains(t, r.text, "\x1b")
			assert.NotContains(t, r.text, "\x00")
			assert.True(t, r.id == "" || isValidStatusID([]byte(r.id)))
			assert.True(t, r.kind == "" || r.state == "blocked")
			assert.Equal(t, shimwire.SanitizeLine(r.text), r.text)
		}
		padded, okPadded := parseStatus(bytes.ReplaceAll(body, []byte{':'}, []byte(" :\t")), nil)
		assert.Equal(t, r, padded)
		assert.Equal(t, ok, okPadded)
		sent := ansi.SetProgramStatus(ansi.ProgramStatus{
			State: ansi.ProgramStateBlocked, Kind: ansi.ProgramStatusKindAuth, Message: string(body),
		})
		again, ok := parseStatus([]byte(strings.TrimSuffix(strings.TrimPrefix(sent, "\x1b]7501;"), "\a")), nil)
		assert.True(t, ok)
		assert.Equal(t, "auth", again.kind)
	})
}

// programStatusAfter returns the status after these reports.
func programStatusAfter(bodies ...string) *programStatus {
	p := &programStatus{}
	for _, body := range bodies {
		if r, ok := parseStatus([]byte(body), nil); ok {
			p.update(r)
		}
	}
	return p
}

func TestProgramStatus_SummarizesRecords(t *testing.T) {
	ask := "state=blocked:kind=permission:id=part:msg=" + encoded("may I?")
	for _, row := range []struct {
		name   string
		bodies []string
		want   agentStatus
	}{
		{"nothing", nil, agentStatus{}},
		{"idle", []string{"state=idle"}, agentStatus{activity: "idle"}},
		{
			"done", []string{"state=working", "state=done:msg=" + encoded("3 pass")},
			statusOf("idle", "turn-ended", "3 pass"),
		},
		{"failed", []string{"state=error:msg=" + encoded("no network")}, statusOf("idle", "error", "no network")},
		{"blocked", []string{"state=blocked:kind=auth"}, statusOf("waiting", "auth", "")},
		{
			"blocked without a kind", []string{"state=blocked:msg=" + encoded("touch the key")},
			statusOf("waiting", "blocked", "touch the key"),
		},
		{"cleared", []string{"state=blocked", "state=clear"}, agentStatus{}},
		{
			"parts do not change the activity of the root",
			[]string{"state=working", "state=idle:id=part", "state=error:id=other"}, agentStatus{activity: "working"},
		},
		{"a part is blocked", []string{"state=working", ask}, statusOf("working", "permission", "may I?")},
		{
			"a blocked part continues", []string{"state=working", ask, "state=working:id=part"},
			agentStatus{activity: "working"},
		},
		{
			"a blocked part is cleared", []string{"state=working", ask, "state=clear:id=part"},
			agentStatus{activity: "working"},
		},
		{
			"the parent of a blocked part is cleared",
			[]string{"state=working", "state=blocked:id=a/b", "state=clear:id=a"}, agentStatus{activity: "working"},
		},
		{
			"a part whose ID has the same prefix is cleared",
			[]string{"state=working", "state=blocked:id=ab", "state=clear:id=a"}, statusOf("working", "blocked", ""),
		},
		{"the root is done, a part is blocked", []string{"state=done", ask}, statusOf("idle", "permission", "may I?")},
		{"the root and a part are blocked", []string{"state=blocked:kind=auth", ask}, statusOf("waiting", "auth", "")},
		{"parts without a root", []string{"state=working:id=a", "state=idle:id=b"}, agentStatus{activity: "working"}},
		{
			"a blocked part without a root", []string{"state=working:id=a", ask},
			statusOf("waiting", "permission", "may I?"),
		},
	} {
		assert.Equal(t, row.want, programStatusAfter(row.bodies...).agentStatus(), row.name)
	}
}

func TestProgramStatus_LimitsRecords(t *testing.T) {
	p := programStatusAfter("state=working")
	for i := range 1000 {
		p.update(statusRecord{id: fmt.Sprint(i), state: "idle"})
		assert.LessOrEqual(t, len(p.records), maxStatusRecords)
	}
	assert.Equal(t, agentStatus{activity: "working"}, p.agentStatus(), "the root is kept")
	assert.Equal(t, "999", p.records[0].id)
}

func TestProgramStatus_EvictsTheOldestRecord(t *testing.T) {
	p := programStatusAfter("state=blocked:id=asks", "state=done:id=old")
	for i := range maxStatusRecords - 2 {
		p.update(statusRecord{id: fmt.Sprint(i), state: "working"})
	}
	p.update(statusRecord{id: "asks", state: "blocked"})
	p.update(statusRecord{id: "new", state: "idle"})
	has := func(id string) bool {
		return slices.ContainsFunc(p.records, func(r statusRecord) bool { return r.id == id })
	}
	assert.True(t, has("asks") && has("0") && !has("old"))
}

// TestProgramStatus_ShellMarksEndRecords checks which records a shell's prompt leaves, and which
// the next command of the shell does.
func TestProgramStatus_ShellMarksEndRecords(t *testing.T) {
	for _, row := range []struct {
		body                   string
		afterPrompt, atCommand agentStatus
	}{
		{"state=working", agentStatus{}, agentStatus{activity: "working"}},
		{"state=blocked", agentStatus{}, agentStatus{activity: "waiting", reason: "blocked"}},
		{"state=idle", agentStatus{}, agentStatus{}},
		{"state=done", agentStatus{activity: "idle", reason: "turn-ended"}, agentStatus{}},
		{"state=error:id=a", agentStatus{activity: "idle", reason: "error"}, agentStatus{}},
	} {
		p := programStatusAfter(row.body)
		p.handleShellPrompt()
		assert.Equal(t, row.afterPrompt, p.agentStatus(), row.body)
		p = programStatusAfter(row.body)
		p.handleShellCommand()
		assert.Equal(t, row.atCommand, p.agentStatus(), row.body)
	}
}

// TestHandleShellMark_EndsRecordsOfThePreviousProgram checks a shell that runs a program which
// reports its status, and then one that does not.
func TestHandleShellMark_EndsRecordsOfThePreviousProgram(t *testing.T) {
	s := &shim{}
	s.timers = &timers{fd: -1}
	s.scanner.init(s.handleOSC, s.resetProgramStatus)
	for _, row := range []struct {
		name, output   string
		osc7501, title agentStatus
	}{
		{
			"the program works", "\x1b]133;C\a\x1b]7501;state=working:id=a\a\x1b]7501;state=working\a",
			agentStatus{activity: "working"}, agentStatus{activity: "working"},
		},
		{"it was killed", "\x1b]133;D;137\a\x1b]133;A;k=i\a", agentStatus{}, agentStatus{activity: "idle"}},
		{
			"another one has finished", "\x1b]133;C\a\x1b]7501;state=done\a\x1b]133;D;0\a\x1b]133;A\a",
			agentStatus{activity: "idle", reason: "turn-ended"}, agentStatus{activity: "idle"},
		},
		{"the next one reports nothing", "\x1b]133;C\a", agentStatus{}, agentStatus{activity: "working"}},
	} {
		s.scanner.scan([]byte(row.output))
		got := [...]agentStatus{s.reports[sourceOSC7501].agentStatus, s.reports[sourceTitle].agentStatus}
		assert.Equal(t, [...]agentStatus{row.osc7501, row.title}, got, row.name)
	}
}

// TestHandleProgramStatus_AnswersTheQuery checks what is a query, and that the answer has its
// terminator.
func TestHandleProgramStatus_AnswersTheQuery(t *testing.T) {
	for output, want := range map[string]string{
		"\x1b]7501;?\x1b\\":                   "\x1b]7501;?\x1b\\",
		"\x1b]7501;?\a":                       "\x1b]7501;?\a",
		"\x1b]7501; ?\t\x1b\\":                "\x1b]7501;?\x1b\\",
		"\x1bPtmux;\x1b\x1b]7501;?\a\x1b\\":   "\x1b]7501;?\a",
		"\x1b]7501;state=idle\a\x1b]7501;?\a": "\x1b]7501;?\a",
		"\x1b]7501;??\a":                      "",
		"\x1b]7501;?:state=idle\a":            "",
		"\x1b]7501;\a":                        "",
		"\x1b]7501\a":                         "",
		"\x1b]75010;?\a":                      "",
	} {
		s := &shim{}
		s.timers = &timers{fd: -1}
		s.scanner.init(s.handleOSC, s.resetProgramStatus)
		s.scanner.scan([]byte(output))
		answer := ""
		if s.input.pendingAnswers == 1 {
			answer = string(s.input.answer)
		}
		assert.Equal(t, want, answer, "%q", output)
	}
}

func statusOf(activity, reason, text string) agentStatus {
	return agentStatus{activity: activity, reason: reason, text: text}
}
