package supervisor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
)

// slowDetector is a detector that waits before it answers: for a login shell, or for a file system
// that does not answer.
type slowDetector struct {
	*fakeSystem
	wait func()
}

func (d slowDetector) DetectOpen(group string, agent int, file conversations.OpenFile) conversations.Opened {
	d.wait()
	return d.fakeSystem.DetectOpen(group, agent, file)
}

func (d slowDetector) DetectPrinted(dir string, p conversations.Printed, v conversations.Variables) string {
	d.wait()
	return d.fakeSystem.DetectPrinted(dir, p, v)
}

// TestShutdown_WaitsForThePrintedConversation: the agent prints its conversation when the login
// session ends, and the next daemon resumes that one.
func TestShutdown_WaitsForThePrintedConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.system.stops, b.system.printed = true, "printed"
		b.sup.loop.system.Conversations = slowDetector{b.system, func() { <-time.After(100 * time.Millisecond) }}
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.withConversations()
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
		cancel()
		synctest.Wait()
		b.exit("shop", 0)
		b.sup.ScopeEnded(unitname.Scope("preset", "shop"), "inv", "success")
		<-done
		assert.Equal(t, "printed", b.records.last("shop").ConversationID)
	})
}

// TestShutdown_DoesNotWaitForeverForAConversation: the detection may read a file system that does
// not answer.
func TestShutdown_DoesNotWaitForeverForAConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.system.printed = "printed"
		hang := make(chan struct{})
		b.sup.loop.system.Conversations = slowDetector{b.system, func() { <-hang }}
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.withConversations()
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
		b.exit("shop", 0)
		b.sup.ScopeEnded(unitname.Scope("preset", "shop"), "inv", "success")
		synctest.Wait()
		began := time.Now()
		cancel()
		<-done
		assert.Equal(t, b.options.Config.StopTimeout+shutdownMargin, time.Since(began))
		close(hang)
	})
}

// TestAdopt_DetectsThePrintedConversationOfARecentExit: an earlier daemon was killed after it had
// saved the exit. The conversation that it has assigned is not the one that the agent used last.
func TestAdopt_DetectsThePrintedConversationOfARecentExit(t *testing.T) {
	for age, want := range map[time.Duration]string{recentExit - 1: "printed", recentExit: "given"} {
		supervise(t, func(b *bed) {
			b.withConversations()
			b.system.printed = "printed"
			rec := runningRecord(b, true)
			rec.Agent, rec.Defined, rec.ConversationID = "preset", true, "given"
			rec.Run.Conversation, rec.Run.ConversationFrom, rec.Run.Scope = "given", session.Given, session.ScopeGone
			rec.Run.Exit = &exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Exited: time.Now()}
			<-time.After(age)
			b.onLoop(func() {
				require.NoError(t, b.sup.Adopt(b.t.Context(), []*session.Session{rec}))
			})
			synctest.Wait()
			assert.Equal(t, want, b.records.last("shop").ConversationID)
		})
	}
}

// TestStop_DoesNotWaitForADetection: the signals of a stop are sent although the files of the agent
// cannot be examined, and the session can be started again.
func TestStop_DoesNotWaitForADetection(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		hang := make(chan struct{})
		defer close(hang)
		b.onLoop(func() { b.sup.loop.system.Conversations = slowDetector{b.system, func() { <-hang }} })
		require.NoError(t, b.create("reports", Spec{ID: "shop"}))
		b.takeTrace()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		<-time.After(detectOpenTimeout)
		assert.Contains(t, b.takeTrace(), "1s terminate shop")
		b.exit("shop", 0)
		b.sup.ScopeEnded(unitname.Scope("reports", "shop"), "inv", "success")
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		<-time.After(detectOpenTimeout + detectPrintedTimeout)
		assert.Contains(t, strings.Join(b.takeTrace(), "\n"), "s start: ok")
	})
}
