package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

func (s *testSession) capture(lines uint32, flags uint64) string {
	s.t.Helper()
	var text string
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Capture",
		[]any{lines, flags}, &text))
	return text
}

// waitOutput starts a session that runs a script and then waits, and returns once the script's
// output is on the screen.
func (d *corrald) printingSession(t *testing.T, id, script string) *testSession {
	t.Helper()
	s := d.run(t, id, script+"; echo; echo printed; exec sleep 1000")
	waitFile(t, d.stateDir(id)+"/output.log", "printed")
	// The shim writes the log before tmux has drawn the output.
	testbed.Poll(t, "the end of the output is on the screen", func() bool {
		return strings.Contains(s.capture(3, 0), "printed")
	})
	return s
}

// TestCapture_IsBounded checks the limits in bytes and in lines, and that the last output is at the
// end.
func TestCapture_IsBounded(t *testing.T) {
	d := startDaemon(t)
	s := d.printingSession(t, "long",
		`i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '%04d \033[31m漢字漢字漢字漢字漢字漢字漢字漢字漢字\033[0m\n' $i; done`)
	for _, flags := range []uint64{0, dbusapi.CaptureEscapes} {
		text := s.capture(^uint32(0), flags)
		assert.LessOrEqual(t, len(text), dbusapi.MaxCapture)
		assert.Greater(t, len(text), dbusapi.MaxCapture-8)
		assert.True(t, utf8.ValidString(text), "the text is cut between characters")
		assert.Contains(t, text[len(text)-20:], "printed")
		assert.Equal(t, flags != 0, strings.Contains(text, "\x1b["))
	}
	assert.Equal(t, 5, strings.Count(s.capture(5, 0), "\n"))
	assert.Less(t, strings.Count(s.capture(0, 0), "\n"), 100, "only the screen")
}

// TestCapture_IsValidUTF8 checks output that is not text: a message with invalid UTF-8 would end
// the connection to the bus.
func TestCapture_IsValidUTF8(t *testing.T) {
	d := startDaemon(t)
	s := d.printingSession(t, "noise",
		`printf 'a\000b\377c\300\257d\355\240\200e\364\220\200\200f\033]2;t\377\000\007g\n'; printf '\200\237\341\200\n\001\002\005\177\302\n\357\277\277\n'`)
	for _, flags := range []uint64{0, dbusapi.CaptureEscapes} {
		text := s.capture(1000, flags)
		assert.True(t, utf8.ValidString(text))
		assert.NotContains(t, text, "\x00")
	}
	s.properties()
}

// TestOpenLog_DescriptorIsReadOnlyAndSurvivesRotation checks that the descriptor cannot be written
// to, and refers to the same file after the log was rotated.
func TestOpenLog_DescriptorIsReadOnlyAndSurvivesRotation(t *testing.T) {
	d := startDaemon(t, "LogMaxSize=64K")
	pass, open := d.gate(t, "more")
	s := d.run(t, "chatty",
		"echo first; "+pass+`; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo "line $i of many"; done; exec sleep 1000`)
	path := d.stateDir("chatty") + "/output.log"
	waitFile(t, path, "first")
	var fd dbus.UnixFD
	require.NoError(t, s.call(dbusapi.SessionPath("chatty"), dbusapi.SessionInterface+".OpenLog", nil, &fd))
	log := os.NewFile(uintptr(fd), "log")
	defer func() { _ = log.Close() }()
	_, err := log.WriteString("forged")
	require.Error(t, err)
	open()
	waitFile(t, path+".1", "line 1 of many")
	old, err := io.ReadAll(log)
	require.NoError(t, err)
	waitFile(t, path, "line 2000 of many")
	current := readFile(t, path)
	lines := strings.Split(strings.ReplaceAll(string(old)+current, "\r", ""), "\n")
	assert.Equal(t, "first", lines[0])
	for i, line := range lines[1 : len(lines)-1] {
		require.Equal(t, fmt.Sprintf("line %d of many", i+1), line)
	}
}
