package journal

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSetLevel_AcceptsSyslogNames(t *testing.T) {
	l := New(new(slog.LevelVar))
	t.Cleanup(l.Close)
	assert.Equal(t, "info", l.Level())
	for name, want := range map[string][]slog.Level{
		"debug":   {slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError},
		"info":    {slog.LevelInfo, slog.LevelWarn, slog.LevelError},
		"notice":  {slog.LevelWarn, slog.LevelError},
		"warning": {slog.LevelWarn, slog.LevelError},
		"err":     {slog.LevelError},
		"crit":    nil,
		"alert":   nil,
		"emerg":   nil,
	} {
		assert.True(t, l.SetLevel(name), name)
		assert.Equal(t, name, l.Level())
		var enabled []slog.Level
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			if l.Handler().Enabled(context.Background(), level) {
				enabled = append(enabled, level)
			}
		}
		assert.Equal(t, want, enabled, name)
	}
	before := l.Level()
	for _, name := range []string{"", "verbose", "7", "INFO"} {
		assert.False(t, l.SetLevel(name), name)
		assert.Equal(t, before, l.Level())
	}
}

// TestSetTarget_AppliesToExistingHandlers: loggers that were created before SetTarget write to the
// new target.
func TestSetTarget_AppliesToExistingHandlers(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = w
	l := New(new(slog.LevelVar))
	log := slog.New(l.Handler()).With("session", "shop")
	assert.Equal(t, Auto, l.Target())
	log.Info("one")
	require.True(t, l.SetTarget(Null))
	log.Info("two")
	require.True(t, l.SetTarget(Console))
	log.Info("three")
	for _, name := range []string{"", "kmsg", "syslog", "/dev/null"} {
		assert.False(t, l.SetTarget(name), name)
	}
	assert.Equal(t, Console, l.Target())
	os.Stderr = stderr
	l.Close()
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, l.Identifier()+": one (session=shop)\n"+l.Identifier()+": three (session=shop)\n", string(text))
}
