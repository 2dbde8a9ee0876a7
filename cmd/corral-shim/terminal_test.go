package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTerminal_InheritsSettingsOfThePane(t *testing.T) {
	s := newTestSession(t, "sh", "-c", "stty size; stty -a; tty; echo $$; ps -o sid= -o tpgid= -p $$").startShim()
	require.Equal(t, 0, s.wait())
	log := s.log()
	assert.True(t, strings.HasPrefix(log, "30 100\r\n"))
	assert.Contains(t, log, "iutf8")
	assert.Contains(t, log, "icanon")
	assert.Contains(t, log, "/dev/pts/")
	s.waitFor(log)
}

func TestTerminal_FollowsPaneSize(t *testing.T) {
	s := newTestSession(t, "sizes").startShim()
	s.waitFor("size 30 100 800 480\r\n")
	s.setSize(50, 132)
	s.waitFor("size 50 132 1056 800\r\n")
	s.setSize(1, 1)
	s.waitFor("size 1 1 8 16\r\n")
	s.typeKeys("\x03")
	assert.Equal(t, 130, s.wait())
}

func TestTerminal_HasPixelSize(t *testing.T) {
	a, err := openInner(saneSettings(), &unix.Winsize{Row: 3, Col: 4, Xpixel: 5, Ypixel: 6})
	require.NoError(t, err)
	defer func() { _, _ = unix.Close(a.master), unix.Close(a.slave) }()
	w, err := unix.IoctlGetWinsize(a.slave, unix.TIOCGWINSZ)
	require.NoError(t, err)
	assert.Equal(t, unix.Winsize{Row: 3, Col: 4, Xpixel: 5, Ypixel: 6}, *w)
}

func TestTerminal_InterruptAndQuitKeys(t *testing.T) {
	for key, exit := range map[string]int{"\x03": 130, "\x1c": 131} {
		s := newTestSession(t, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000").startShim()
		s.waitFor("ready")
		s.typeKeys(key)
		assert.Equal(t, exit, s.wait())
	}
}

func TestTerminal_SupportsJobControl(t *testing.T) {
	ts := newTestSession(t, "bash", "--norc", "-i")
	ts.writeFile("job", `trap "echo again" CONT; trap "echo interrupted; exit 5" INT; echo running; while :; do read x; done`)
	s := ts.startShim()
	s.waitFor("ready> ")
	s.typeKeys("sh job\n")
	s.waitFor("running\r\n")
	s.typeKeys("\x1a")
	s.waitFor("Stopped")
	s.typeKeys("fg\n")
	s.waitFor("again\r\n")
	s.typeKeys("\x03\n")
	s.waitFor("interrupted")
	s.typeKeys("echo status $?\n")
	s.waitFor("status 5")
	s.typeKeys("exit 6\n")
	assert.Equal(t, 6, s.wait())
}

func TestTerminal_PassesBytesUnchanged(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	sequences := "\x1b[38;2;1;2;3mtrue colour\x1b[0m\x1b[?1000h\x1b[?1006h\x1b[?2004h" +
		"\x1b[>1u\x1b[=3;1u\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\" + string(all)
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf go; cat in; head -c $1 > got; printf done`, "sh", "300")
	ts.writeFile("in", sequences)
	s := ts.startShim()
	s.waitFor("go" + sequences)
	keys := "\x1b[<0;10;20M\x1b[97;5u\x1b[200~pasted\x1b[201~\x03\x1a\x11\x13" + string(all)
	keys += strings.Repeat("x", 300-len(keys))
	s.typeKeys(keys)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, keys, ts.readFile("got"))
	s.waitFor("go" + sequences + "done")
	assert.Equal(t, "go"+sequences+"done", s.log())
}

func TestTerminal_AcceptsLongPastes(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 1<<14)
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf go; head -c $1 > got`, "sh", "262144")
	s := ts.startShim()
	s.waitFor("go")
	s.typeKeys(text)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, text, ts.readFile("got"))
}

func TestTerminal_ShowsTheEndOfLongOutput(t *testing.T) {
	s := newTestSession(t, "sh", "-c", "seq 200000; exit 9").startShim()
	require.Equal(t, 9, s.wait())
	s.waitFor("\n199999\r\n200000\r\n")
	assert.True(t, strings.HasSuffix(s.log(), "199999\r\n200000\r\n"))
}

func TestTerminal_RestoresPaneSettings(t *testing.T) {
	s := newTestSession(t, "true").startShim()
	require.Equal(t, 0, s.wait())
	mode, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
	require.NoError(t, err)
	assert.NotZero(t, mode.Lflag&unix.ECHO)
}
