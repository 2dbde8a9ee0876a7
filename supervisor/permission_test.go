package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// answerable gives the agent of the bed's session keys that answer it, and returns what is pressed.
func (b *bed) answerable() *[]session.PermissionRequest {
	var pressed []session.PermissionRequest
	def := b.sup.Agents["command"]
	def.ApproveKeys, def.DenyKeys = []string{"y", "Enter"}, []string{"Escape"}
	b.sup.Agents["command"] = def
	b.world.pressed = func(_ []string, asked *session.PermissionRequest) error {
		pressed = append(pressed, *asked)
		return nil
	}
	return &pressed
}

func (s *shim) said(seq uint32, activity, reason string) {
	s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: shimwire.OSC7501, Activity: activity, Reason: reason, Seq: seq, Since: time.Now()})
}

func TestApprove_OnlyWhileTheAgentAsksForPermission(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		pressed := b.answerable()
		refused := func(says string) {
			t.Helper()
			for _, err := range []error{b.sup.Approve(b.t.Context(), "shop"), b.sup.Deny(b.t.Context(), "shop")} {
				assert.Equal(t, NotWaiting, kindOf(err))
				require.EqualError(t, err, `session "shop" does not wait for a permission: `+says)
			}
			assert.Empty(t, *pressed)
		}
		refused("its agent is working")
		s.said(5, "waiting", "question")
		s.wants()
		refused("its agent waits for something else")
		s.said(6, "idle", "")
		s.wants()
		refused("its agent is idle")
		s.said(7, "working", "permission") // a part of it asks, and the agent itself works
		s.wants()
		refused("its agent is working")

		s.said(8, "waiting", "permission")
		s.wants()
		b.heard()
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		require.NoError(t, b.sup.Approve(b.t.Context(), "shop"), "who has seen it may answer it")
		require.Len(t, *pressed, 1)
		assert.Equal(t, session.FromOSC7501, (*pressed)[0].Source)
		assert.EqualValues(t, 8, (*pressed)[0].Known)
		assert.Contains(t, b.heard(), "0s press shop [y Enter]")
		*pressed = nil
		refused("it was answered just now")
		<-time.After(answerTime)
		require.NoError(t, b.sup.Deny(b.t.Context(), "shop"), "it still asks: it has not taken the key")
		*pressed = nil
		<-time.After(answerTime)

		seen := s.snapshot().AttentionSince
		s.said(9, "working", "")
		s.said(10, "waiting", "permission")
		s.wants()
		old := Answer{Since: (time.Now().Add(-time.Minute))}
		require.EqualError(t, b.sup.AnswerPermission(b.t.Context(), "shop", old), `session "shop" now asks for something else`, "seen at %v", seen)
		require.NoError(t, b.sup.AnswerPermission(b.t.Context(), "shop", Answer{Since: s.snapshot().AttentionSince}))
		s.hangUp()
	})
}

func TestApprove_OfAReportIsSettledByIt(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		pressed := b.answerable()
		b.report("waiting", "permission", "may I?")
		require.NoError(t, b.sup.Approve(b.t.Context(), "shop"))
		assert.Equal(t, session.FromReport, (*pressed)[0].Source)
		assert.NotZero(t, (*pressed)[0].Monotonic)
		assert.NotEqual(t, "waiting", s.wants().activity)
		assert.Equal(t, NotWaiting, kindOf(b.sup.Approve(b.t.Context(), "shop")))
		s.hangUp()
	})
}

// TestApprove_SaysWhyItWasNotDone, and that nothing was answered then.
func TestApprove_SaysWhyItWasNotDone(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		b.report("waiting", "permission", "may I?")
		err := b.sup.Approve(b.t.Context(), "shop")
		assert.Equal(t, Unsupported, kindOf(err))
		require.EqualError(t, err, `session "shop" cannot be answered: the definition of agent "command" has no ApproveKeys=; answer in its terminal`)
		b.answerable()
		for _, row := range []struct {
			err  error
			kind Kind
			says string
		}{
			{&NotAskedError{"its agent has continued meanwhile"}, NotWaiting, `session "shop" does not wait for a permission: its agent has continued meanwhile`},
			{ErrOldShim, InvalidState, `cannot answer session "shop": its shim was started by an older version of Corral and cannot check whether the agent still asks; answer in its terminal`},
			{assert.AnError, InvalidState, `cannot answer session "shop": ` + assert.AnError.Error()},
		} {
			b.world.pressed = func([]string, *session.PermissionRequest) error { return row.err }
			err := b.sup.Approve(b.t.Context(), "shop")
			assert.Equal(t, row.kind, kindOf(err))
			require.EqualError(t, err, row.says)
			assert.Equal(t, "waiting", s.wants().activity)
		}
		b.exit("shop", 3)
		require.EqualError(t, b.sup.Deny(b.t.Context(), "shop"), `cannot answer session "shop": it has failed`)
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Approve(b.t.Context(), "other")))
		s.hangUp()
	})
}

// TestKeys_ThatMoveAMark to another choice answer nothing, and any other key does.
func TestKeys_ThatMoveAMark(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		b.report("waiting", "permission", "may I?")
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Up", "Tab", "BTab", "PageDown", "End"}))
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants())
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Enter"}))
		assert.Equal(t, wants{"", "output", "working"}, s.wants())
		s.hangUp()
	})
}

func TestKeys_ThatAreNone(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		err := b.sup.Keys(b.t.Context(), "shop", []string{"Down", "Entr"})
		assert.Equal(t, Invalid, kindOf(err))
		require.EqualError(t, err, `invalid key "Entr": expected a key name of tmux such as Enter, Escape or C-c, or one character`)
		assert.Equal(t, OverLimit, kindOf(b.sup.Keys(b.t.Context(), "shop", make([]string, maxKeys+1))))
		assert.NotContains(t, b.heard(), "0s press shop [Down Entr]")
		s.hangUp()
	})
}
