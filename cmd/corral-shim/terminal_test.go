package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTerminal_InheritsSettingsOfThePane(t *testing.T) {
	s := newHome(t, "sh", "-c", "stty size; stty -a; tty; echo $$; ps -o sid= -o tpgid= -p $$").show()
	require.Equal(t, 0, s.ends())
	log := s.log()
	assert.True(t, strings.HasPrefix(log, "30 100\r\n"))
	assert.Contains(t, log, "iutf8")
	assert.Contains(t, log, "icanon")
	assert.Contains(t, log, "/dev/pts/")
	s.sees(log)
}

func TestTerminal_FollowsPaneSize(t *testing.T) {
	s := newHome(t, "sizes").show()
	s.sees("size 30 100 800 480\r\n")
	s.setSize(50, 132)
	s.sees("size 50 132 1056 800\r\n")
	s.setSize(1, 1)
	s.sees("size 1 1 8 16\r\n")
	s.keys("\x03")
	assert.Equal(t, 130, s.ends())
}

func TestTerminal_HasPixelSize(t *testing.T) {
	a, err := openInner(sane(), &unix.Winsize{Row: 3, Col: 4, Xpixel: 5, Ypixel: 6})
	require.NoError(t, err)
	defer func() { _, _ = unix.Close(a.master), unix.Close(a.slave) }()
	w, err := unix.IoctlGetWinsize(a.slave, unix.TIOCGWINSZ)
	require.NoError(t, err)
	assert.Equal(t, unix.Winsize{Row: 3, Col: 4, Xpixel: 5, Ypixel: 6}, *w)
}

func TestTerminal_InterruptAndQuitKeys(t *testing.T) {
	for key, exit := range map[string]int{"\x03": 130, "\x1c": 131} {
		s := newHome(t, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000").show()
		s.sees("ready")
		s.keys(key)
		assert.Equal(t, exit, s.ends())
	}
}

func TestTerminal_SupportsJobControl(t *testing.T) {
	h := newHome(t, "bash", "--norc", "-i")
	h.write("job", `trap "echo again" CONT; trap "echo interrupted; exit 5" INT; echo running; while :; do read x; done`)
	s := h.show()
	s.sees("ready> ")
	s.keys("sh job\n")
	s.sees("running\r\n")
	s.keys("\x1a")
	s.sees("Stopped")
	s.keys("fg\n")
	s.sees("again\r\n")
	s.keys("\x03\n")
	s.sees("interrupted")
	s.keys("echo status $?\n")
	s.sees("status 5")
	s.keys("exit 6\n")
	assert.Equal(t, 6, s.ends())
}

func TestTerminal_PassesBytesUnchanged(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	sequences := "\x1b[38;2;1;2;3mtrue colour\x1b[0m\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[>1u\x1b[=3;1u\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\" + string(all)
	h := newHome(t, "sh", "-c", `stty raw -echo; printf go; cat in; head -c $1 > got; printf done`, "sh", "300")
	h.write("in", sequences)
	s := h.show()
	s.sees("go" + sequences)
	keys := "\x1b[<0;10;20M\x1b[97;5u\x1b[200~pasted\x1b[201~\x03\x1a\x11\x13" + string(all)
	keys += strings.Repeat("x", 300-len(keys))
	s.keys(keys)
	require.Equal(t, 0, s.ends())
	assert.Equal(t, keys, h.read("got"))
	s.sees("go" + sequences + "done")
	assert.Equal(t, "go"+sequences+"done", s.log())
}

func TestTerminal_AcceptsLongPastes(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 1<<14)
	h := newHome(t, "sh", "-c", `stty raw -echo; printf go; head -c $1 > got`, "sh", "262144")
	s := h.show()
	s.sees("go")
	s.keys(text)
	require.Equal(t, 0, s.ends())
	assert.Equal(t, text, h.read("got"))
}

func TestTerminal_ShowsTheEndOfLongOutput(t *testing.T) {
	s := newHome(t, "sh", "-c", "seq 200000; exit 9").show()
	require.Equal(t, 9, s.ends())
	s.sees("\n199999\r\n200000\r\n")
	assert.True(t, strings.HasSuffix(s.log(), "199999\r\n200000\r\n"))
}

func TestTerminal_RestoresPaneSettings(t *testing.T) {
	s := newHome(t, "true").show()
	require.Equal(t, 0, s.ends())
	mode, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
	require.NoError(t, err)
	assert.NotZero(t, mode.Lflag&unix.ECHO)
}
