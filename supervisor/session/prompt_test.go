package session_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

func TestWhichRunsAreToldThePrompt(t *testing.T) {
	begin := session.RunAsked{Run: run, At: at(1)}
	again := session.RunAsked{Run: "2", Resumed: true, At: at(70)}
	ended := exit(exitstatus.Exited, 3)
	told := exit(exitstatus.Exited, 3)
	told.Status.Prompted = true
	for _, row := range []struct {
		name    string
		before  []session.Event
		resumed bool
		want    bool
	}{
		{"the first", nil, false, true},
		{"a fresh one after it was told", []session.Event{begin, session.Prompted{Run: run}, ended}, false, true},
		{"a resumed one after it was told", []session.Event{begin, session.Prompted{Run: run}, ended}, true, false},
		{"told, which only the record of its exit says", []session.Event{begin, told}, true, false},
		{"ended before it was told", []session.Event{begin, ended}, true, true},
		{"never started", []session.Event{begin, session.StartFailed{Run: run, Reason: "tmux", At: at(2)}}, true, true},
		{"killed with its shim: nobody can tell", []session.Event{begin, agent, session.ShimDied{Run: run, At: at(3)}}, true, false},
		{"killed before it was heard of", []session.Event{begin, scope, wentDown}, true, false},
		{"the same, and then another", []session.Event{begin, scope, wentDown, again, session.StartFailed{Run: "2", Reason: "tmux", At: at(72)}}, true, false},
		{"told of a run that is over", []session.Event{begin, ended, again, session.Prompted{Run: run}, session.StartFailed{Run: "2", At: at(72), Reason: "x"}}, true, true},
	} {
		s := session.Session{ID: "shop", Prompt: "fix"}
		for _, e := range row.before {
			s.Apply(e)
		}
		assert.Equal(t, row.want, s.GivesPrompt(row.resumed), row.name)
		s.Prompt = ""
		assert.False(t, s.GivesPrompt(row.resumed), row.name)
	}
}
