package supervisor

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/setup"
	"github.com/corrald/corral/supervisor/session"
)

// unprepared is a bed with a session that was created in a worktree and waits for its setup.
type unprepared struct {
	*bed
	commands chan setup.Command // that are executed
	result   chan setup.Failure // of the next command, the zero value for none
}

// superviseUnprepared runs f with a supervisor that has adopted such a session, shop.
func superviseUnprepared(t *testing.T, was session.Setup, f func(*unprepared)) {
	synctest.Test(t, func(t *testing.T) {
		u := &unprepared{newBed(t), make(chan setup.Command, 1), make(chan setup.Failure)}
		repository := t.TempDir()
		u.options.Config.Repositories = config.Repositories{{
			Paths: []string{repository}, SetupCommand: []string{"install", "%i"}, TeardownCommand: []string{"remove"},
		}}
		u.options.RunSetup = func(ctx context.Context, _ string, _ time.Duration, input []byte) ([]byte, error) {
			var c setup.Command
			if err := json.Unmarshal(input, &c); err != nil {
				return nil, err
			}
			u.commands <- c
			select {
			case failure := <-u.result:
				output, err := json.Marshal(failure)
				return output, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		u.sup = New(u.options)
		rec := &session.Session{
			ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: t.TempDir(), Created: time.Now(),
			Ports: session.Ports{First: 20000, Count: 1}, Setup: was, State: session.Created,
		}
		rec.Worktree = &session.Worktree{
			Repository: filepath.Join(repository, ".git"), Path: rec.WorkingDirectory, Branch: "fix",
		}
		require.NoError(t, u.records.Create("shop"))
		require.NoError(t, u.sup.Adopt(t.Context(), []*session.Session{rec}))
		ctx, cancel := context.WithCancel(t.Context())
		go u.run(ctx)
		f(u)
		cancel()
		synctest.Wait()
	})
}

// start requests the start of the session, and returns the command that sets its worktree up.
func (u *unprepared) start() setup.Command {
	u.call("start", func(ctx context.Context) error { return u.sup.Start(ctx, "shop") })
	return <-u.commands
}

func (u *unprepared) reason() string {
	u.t.Helper()
	snap, err := u.sup.Session("shop")
	require.NoError(u.t, err)
	assert.Equal(u.t, "created", snap.State)
	return snap.Reason
}

func TestSetup_PrecedesTheFirstRun(t *testing.T) {
	superviseUnprepared(t, session.Setup{Phase: session.SetupPending}, func(u *unprepared) {
		c := u.start()
		assert.Equal(u.t, []string{"install", "shop"}, c.Args)
		assert.Equal(u.t, 10*time.Minute, c.Limit)
		assert.Equal(u.t, u.records.SessionDir("shop"), c.Log)
		assert.Equal(u.t, "its worktree is being set up", u.reason())
		assert.Equal(u.t, session.SetupRunning, u.records.last("shop").Setup.Phase)

		u.call("again", func(ctx context.Context) error { return u.sup.Start(ctx, "shop") })
		u.result <- setup.Failure{}
		trace := u.takeTrace()
		assert.Contains(u.t, trace, `0s again: the worktree of session "shop" is being set up`)
		assert.Contains(u.t, trace, "0s start: ok")
		assert.Equal(u.t, "running", u.state("shop"))

		u.exit("shop", 0)
		u.endScope("shop")
		require.NoError(u.t, u.sup.Start(u.t.Context(), "shop"))
		assert.Empty(u.t, u.commands, "it is set up")
	})
}

func TestSetup_CanBeRepeatedAfterAFailure(t *testing.T) {
	superviseUnprepared(t, session.Setup{Phase: session.SetupPending}, func(u *unprepared) {
		u.start()
		u.result <- setup.Failure{How: "exit code 1", LastLine: "no network"}
		assert.Contains(u.t, u.takeTrace(), `0s start: cannot start "shop": its worktree could not be set up: exit code 1: no network`)
		assert.Equal(u.t, "its worktree could not be set up: exit code 1: no network", u.reason())
		assert.Contains(u.t, u.log.String(), "exit code 1")
		assert.NotContains(u.t, u.log.String(), "no network", "the log contains no output")
		u.start()
		u.result <- setup.Failure{}
		synctest.Wait()
		assert.Equal(u.t, "running", u.state("shop"))
	})
}

// TestSetup_OfAQueuedSession: it holds a place while it is set up, and gives that back if the setup
// fails, which is not repeated.
func TestSetup_OfAQueuedSession(t *testing.T) {
	superviseUnprepared(t, session.Setup{Phase: session.SetupPending}, func(u *unprepared) {
		conf := u.options.Config
		conf.MaxRunning = 1
		require.NoError(u.t, u.sup.Reload(conf, u.options.Agents))
		first, err := u.sup.Create(u.t.Context(), "command", Spec{Command: []string{"true"}})
		require.NoError(u.t, err)
		require.NoError(u.t, u.sup.Start(u.t.Context(), "shop"))
		last, err := u.sup.Create(u.t.Context(), "command", Spec{Command: []string{"true"}})
		require.NoError(u.t, err)
		require.NoError(u.t, u.sup.BeginQueued())
		assert.Empty(u.t, u.commands)

		u.exit(first, 0)
		u.endScope(first)
		<-u.commands
		assert.Equal(u.t, "created", u.state(last), "shop holds the place")
		u.result <- setup.Failure{How: "exit code 1"}
		synctest.Wait()
		assert.Equal(u.t, "its worktree could not be set up: exit code 1", u.reason())
		assert.Equal(u.t, "running", u.state(last))
		u.exit(last, 0)
		u.endScope(last)
		synctest.Wait()
		assert.Empty(u.t, u.commands, "the setup is repeated")
	})
}

func TestSetup_EndsWithAStopOrARemoval(t *testing.T) {
	superviseUnprepared(t, session.Setup{Phase: session.SetupPending}, func(u *unprepared) {
		u.start()
		u.call("stop", func(ctx context.Context) error { return u.sup.Stop(ctx, "shop", 0) })
		trace := u.takeTrace()
		assert.Contains(u.t, trace, `0s start: session "shop" was stopped meanwhile`)
		assert.Contains(u.t, trace, "0s stop: ok")
		assert.Equal(u.t, "its worktree could not be set up: it was stopped", u.reason())

		u.start()
		assert.Equal(u.t, refuse(InvalidState, `session "shop" is being started`), u.sup.Remove(u.t.Context(), "shop", false))
		u.call("remove", func(ctx context.Context) error { return u.sup.Remove(ctx, "shop", true) })
		assert.Contains(u.t, u.takeTrace(), "0s remove: ok")
	})
}

// TestSetup_ContinuesWithTheNextDaemon: a daemon that exits does not report a failure, and the next
// one begins the setup again.
func TestSetup_ContinuesWithTheNextDaemon(t *testing.T) {
	superviseUnprepared(t, session.Setup{Phase: session.SetupRunning, BootID: "boot"}, func(u *unprepared) {
		<-u.commands
		u.call("shutdown", func(ctx context.Context) error {
			_, err := u.sup.SuspendForShutdown(ctx)
			return err
		})
		u.result <- setup.Failure{How: "terminated"}
		synctest.Wait()
		assert.Equal(u.t, session.SetupRunning, u.records.last("shop").Setup.Phase)
	})
	superviseUnprepared(t, session.Setup{Phase: session.SetupRunning, BootID: "earlier"}, func(u *unprepared) {
		synctest.Wait()
		assert.Empty(u.t, u.commands)
		assert.Equal(u.t, "the machine went down while its worktree was set up", u.reason())
		u.start()
		u.result <- setup.Failure{}
		synctest.Wait()
		assert.Equal(u.t, "running", u.state("shop"))
	})
}
