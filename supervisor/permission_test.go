package supervisor

import (
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// withAnswerKeys gives the agent of the bed's session keys that answer it, and returns the requests
// for which they are pressed.
func (b *bed) withAnswerKeys() *[]session.PermissionRequest {
	var pressed []session.PermissionRequest
	def := b.sup.loop.settings.agents["command"]
	def.ApproveKeys, def.DenyKeys = []string{"y", "Enter"}, []string{"Escape"}
	b.sup.loop.settings.agents["command"] = def
	b.system.pressed = func(_ []string, request *session.PermissionRequest) error {
		pressed = append(pressed, *request)
		return nil
	}
	return &pressed
}

// reportStatus makes the shim send a status report that the agent has printed as OSC 7501.
func (s *shim) reportStatus(seq uint32, activity, reason string) {
	s.send(shimwire.Message{
		Kind: shimwire.StatusReport, Source: word.OSC7501, Activity: activity, Reason: reason,
		Seq: seq, Since: time.Now(),
	})
}

func TestApprove_OnlyWhileTheAgentAsksForPermission(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		pressed := b.withAnswerKeys()
		refused := func(reason string) {
			t.Helper()
			for _, err := range []error{b.answer("shop", false), b.answer("shop", true)} {
				assert.Equal(t, NotWaiting, kindOf(err))
				require.EqualError(t, err, `session "shop" does not wait for a permission: `+reason)
			}
			assert.Empty(t, *pressed)
		}
		refused("its agent is working")
		s.reportStatus(5, "waiting", "question")
		s.attention()
		refused("its agent waits for something else")
		s.reportStatus(6, "idle", "")
		s.attention()
		refused("its agent is idle")
		s.reportStatus(7, "working", "permission") // a part of it requests permission, and the agent itself works
		s.attention()
		refused("its agent is working")

		s.reportStatus(8, "waiting", "permission")
		s.attention()
		b.takeTrace()
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		require.NoError(t, b.answer("shop", false), "an acknowledged request can be answered")
		require.Len(t, *pressed, 1)
		assert.Equal(t, session.FromOSC7501, (*pressed)[0].Source)
		assert.EqualValues(t, 8, (*pressed)[0].Known)
		assert.Contains(t, b.takeTrace(), "0s press shop [y Enter]")
		*pressed = nil
		refused("it was answered just now")
		<-time.After(answerTimeout)
		require.NoError(t, b.answer("shop", true), "it still requests permission: it has not read the key")
		*pressed = nil
		<-time.After(answerTimeout)

		seen := s.snapshot().AttentionSince
		s.reportStatus(9, "working", "")
		s.reportStatus(10, "waiting", "permission")
		s.attention()
		old := Answer{Since: (time.Now().Add(-time.Minute))}
		require.EqualError(t, b.sup.AnswerPermission(b.t.Context(), "shop", old),
			`session "shop" now asks for something else`, "seen at %v", seen)
		require.NoError(t, b.sup.AnswerPermission(b.t.Context(), "shop", Answer{Since: s.snapshot().AttentionSince}))
		s.disconnect()
	})
}

func TestApprove_EndsAReportedRequest(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		pressed := b.withAnswerKeys()
		b.report("waiting", "permission", "may I?")
		require.NoError(t, b.answer("shop", false))
		assert.Equal(t, session.FromReport, (*pressed)[0].Source)
		assert.NotZero(t, (*pressed)[0].Monotonic)
		assert.NotEqual(t, "waiting", s.attention().activity)
		assert.Equal(t, NotWaiting, kindOf(b.answer("shop", false)))
		s.disconnect()
	})
}

// TestApprove_ReturnsWhyItFailed: the agent then still waits for the answer.
func TestApprove_ReturnsWhyItFailed(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		b.report("waiting", "permission", "may I?")
		err := b.answer("shop", false)
		assert.Equal(t, Unsupported, kindOf(err))
		require.EqualError(t, err, `session "shop" cannot be answered: `+
			`the definition of agent "command" has no ApproveKeys=; answer in its terminal`)
		b.withAnswerKeys()
		for _, row := range []struct {
			err  error
			kind Kind
			text string
		}{
			{
				&NotAskedError{"its agent has continued meanwhile"}, NotWaiting,
				`session "shop" does not wait for a permission: its agent has continued meanwhile`,
			},
			{
				ErrOldShim, InvalidState,
				`cannot answer session "shop": its shim was started by an older version of Corral ` +
					`and cannot check whether the agent still asks; answer in its terminal`,
			},
			{assert.AnError, InvalidState, `cannot answer session "shop": ` + assert.AnError.Error()},
		} {
			b.system.pressed = func([]string, *session.PermissionRequest) error { return row.err }
			err := b.answer("shop", false)
			assert.Equal(t, row.kind, kindOf(err))
			require.EqualError(t, err, row.text)
			assert.Equal(t, "waiting", s.attention().activity)
		}
		b.exit("shop", 3)
		require.EqualError(t, b.answer("shop", true), `cannot answer session "shop": it has failed`)
		assert.Equal(t, NoSuchSession, kindOf(b.answer("other", false)))
		s.disconnect()
	})
}

// TestKeys_NavigationAnswersNothing: keys that select another choice answer nothing, any other key
// does.
func TestKeys_NavigationAnswersNothing(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		b.report("waiting", "permission", "may I?")
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Up", "Tab", "BTab", "PageDown", "End"}))
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention())
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Enter"}))
		assert.Equal(t, attentionState{"", "output", "working"}, s.attention())
		s.disconnect()
	})
}

func TestKeys_RefusesUnknownNames(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		err := b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Entr"})
		assert.Equal(t, Invalid, kindOf(err))
		require.EqualError(t, err, `invalid key "Entr": expected a key name of tmux such as Enter, Escape or C-c, or one character`)
		assert.Equal(t, OverLimit, kindOf(b.sup.Keys(b.t.Context(), "shop", make([]string, maxKeys+1))))
		assert.NotContains(t, b.takeTrace(), "0s press shop [Down Entr]")
		s.disconnect()
	})
}

// answer grants or denies the permission that the session's agent requests.
func (b *bed) answer(id string, deny bool) error {
	return b.sup.AnswerPermission(b.t.Context(), id, Answer{Deny: deny})
}
