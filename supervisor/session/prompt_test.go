package session_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

func TestGivesPrompt(t *testing.T) {
	begin := session.RunBegun{Run: run, At: at(1)}
	again := session.RunBegun{Run: "2", Resumed: true, At: at(70)}
	failedAgain := session.StartFailed{Run: "2", Reason: "tmux", Moment: moment(72)}
	ended := exit(exitstatus.Exited, 3)
	given := exit(exitstatus.Exited, 3)
	given.Status.Prompted = true
	for _, row := range []struct {
		name    string
		before  []session.Event
		resumed bool
		want    bool
	}{
		{"the first", nil, false, true},
		{"a fresh one after it was given", []session.Event{begin, session.Prompted{Run: run}, ended}, false, true},
		{"a resumed one after it was given", []session.Event{begin, session.Prompted{Run: run}, ended}, true, false},
		{"given, as only the record of its exit shows", []session.Event{begin, given}, true, false},
		{"exited before it was given", []session.Event{begin, ended}, true, true},
		{
			"never started",
			[]session.Event{begin, session.StartFailed{Run: run, Reason: "tmux", Moment: moment(2)}}, true, true,
		},
		{"killed with its shim: not known", []session.Event{begin, agent, allDied}, true, false},
		{"killed before anything was received", []session.Event{begin, scope, wentDown}, true, false},
		{"the same, and then another run", []session.Event{begin, scope, wentDown, again, failedAgain}, true, false},
		{"given, reported after the run was over",
			[]session.Event{begin, ended, again, session.Prompted{Run: run}, failedAgain}, true, true},
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
