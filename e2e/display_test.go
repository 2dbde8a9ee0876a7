//go:build e2e && desktops

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// seat is a place in front of a desktop: a screen, a pointer and a keyboard.
type seat struct {
	*desk
	display  display
	pictures string // directory of the pictures
	saved    int    // number of pictures
	last     []byte // the picture that was read last
}

// display is the screen and the input devices of a display server.
type display interface {
	picture(s *seat) []byte     // the screen, as a PNG
	point(s *seat, x, y int)    // moves the pointer
	click(s *seat)              // presses and releases the first button
	press(s *seat, text string) // types the text and Enter
}

// screenTimeout limits how long something may take to appear on a screen: the processor, which
// other tests may be using, draws and reads the pictures.
const screenTimeout = 3 * time.Minute

// readers are the packages that read pictures.
var readers = []string{"imagemagick", "tesseract-ocr"}

// word is a word on the screen and the centre of its place.
type word struct {
	text string
	x, y int
}

// text is what is written on the screen, by lines.
type text [][]word

// enlarged is by how much a picture is enlarged before it is read, as tesseract expects letters
// that are at least 20 pixels high.
const enlarged = 3

// readings are the ways to prepare a picture for reading, as arguments of convert: for light text
// on a dark ground, and for the dimmed text of buttons on light grounds. Each finds what others
// miss.
var readings = []string{"-negate", "-level 50%,85%", "-level 60%,90%", "-threshold 75%"}

// read returns what is written on the screen. It stops as soon as enough returns true for the text;
// nil reads everything.
func (s *seat) read(enough func(text) bool) text {
	s.t.Helper()
	s.last = s.display.picture(s)
	var lines text
	for _, prepared := range readings {
		script := fmt.Sprintf("convert png:- -colorspace gray -resize %d00%% %s png:- | "+
			"OMP_THREAD_LIMIT=1 tesseract - - --psm 11 tsv", enlarged, prepared)
		cmd := s.Command("root", "sh", "-c", script)
		cmd.Stdin = bytes.NewReader(s.last)
		var failure bytes.Buffer
		cmd.Stderr = &failure
		table, err := cmd.Output()
		require.NoError(s.t, err, "%s", failure.String())
		lines = append(lines, parseTable(string(table))...)
		if enough != nil && enough(lines) {
			break
		}
	}
	return lines
}

// parseTable parses tesseract's table: level, page, block, paragraph, line, word, left, top, width,
// height, confidence, text.
func parseTable(table string) text {
	var lines text
	previous := ""
	for row := range strings.Lines(table) {
		fields := strings.Split(strings.TrimRight(row, "\n"), "\t")
		if len(fields) != 12 || fields[0] != "5" || strings.TrimSpace(fields[11]) == "" {
			continue
		}
		var box [4]int
		for i := range box {
			box[i], _ = strconv.Atoi(fields[6+i])
		}
		if line := strings.Join(fields[1:5], "."); line != previous {
			lines, previous = append(lines, nil), line
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], word{fields[11], (box[0] + box[2]/2) / enlarged, (box[1] + box[3]/2) / enlarged})
	}
	return lines
}

// notLetters matches what text recognition confuses: spaces and punctuation.
var notLetters = regexp.MustCompile(`[^\pL\pN]+`)

func letters(text string) string { return notLetters.ReplaceAllString(strings.ToLower(text), "") }

// has reports whether a line on the screen contains the text, apart from spaces and punctuation.
func (t text) has(wanted string) bool {
	for _, line := range t {
		var all strings.Builder
		for _, w := range line {
			all.WriteString(letters(w.text))
		}
		if strings.Contains(all.String(), letters(wanted)) {
			return true
		}
	}
	return false
}

// find returns the place of a word.
func (t text) find(wanted string) (word, bool) {
	for _, line := range t {
		for _, w := range line {
			if letters(w.text) == letters(wanted) {
				return w, true
			}
		}
	}
	return word{}, false
}

func (t text) String() string {
	var all strings.Builder
	for _, line := range t {
		for _, w := range line {
			fmt.Fprintf(&all, "%s ", w.text)
		}
		all.WriteByte('\n')
	}
	return all.String()
}

// awaitText waits until all texts are on the screen.
func (s *seat) awaitText(wanted ...string) {
	s.t.Helper()
	s.awaitScreen(strings.Join(wanted, ", "), func(t text) bool {
		for _, one := range wanted {
			if !t.has(one) {
				return false
			}
		}
		return true
	})
}

// point waits until a word is on the screen and moves the pointer to it.
func (s *seat) point(wanted string) {
	s.t.Helper()
	var found word
	s.awaitScreen(wanted, func(t text) (ok bool) {
		found, ok = t.find(wanted)
		return ok
	})
	s.display.point(s, found.x, found.y)
}

// click waits until a word is on the screen and clicks it.
func (s *seat) click(wanted string) {
	s.t.Helper()
	s.point(wanted)
	s.display.click(s)
}

// awaitGone waits until a text is not on the screen.
func (s *seat) awaitGone(text string) {
	s.t.Helper()
	s.await("the screen without "+text, func() bool { return !s.read(nil).has(text) })
}

// awaitScreen reads the screen until what it shows is accepted.
func (s *seat) awaitScreen(what string, accept func(text) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(screenTimeout); ; {
		seen := s.read(accept)
		if accept(seen) {
			return
		}
		if time.Now().After(deadline) {
			s.keep("missing", s.last)
			s.t.Fatalf("not on the screen within %v: %s; the screen shows:\n%s", screenTimeout, what, seen)
		}
	}
}

// await polls until done returns true. It is for conditions without an event, such as the start of
// a desktop.
func (s *seat) await(what string, done func() bool) {
	s.t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(screenTimeout); !done(); <-ticker.C {
		if time.Now().After(deadline) {
			s.save("missing")
			s.t.Fatalf("%s: not within %v", what, screenTimeout)
		}
	}
}

// save adds a picture of the screen to the pictures of the test.
func (s *seat) save(name string) {
	s.t.Helper()
	s.keep(name, s.display.picture(s))
}

func (s *seat) keep(name string, picture []byte) {
	s.t.Helper()
	s.saved++
	require.NoError(s.t, os.WriteFile(filepath.Join(s.pictures, fmt.Sprintf("%d-%s.png", s.saved, name)), picture, 0o644))
}

// output runs a command as the user and returns its standard output as it is.
func (s *seat) output(args ...string) []byte {
	s.t.Helper()
	return []byte(s.As(s.user, args...))
}

// session runs a command as the first program of a session of the user, which is opened as by a
// display manager.
func (s *seat) session(environment []string, command ...string) {
	s.t.Helper()
	args := []string{
		"systemd-run", "--quiet", "--unit=desktop", "--property=PAMName=login", "--property=User=" + s.user,
		"--property=StandardInput=null", "--working-directory=/home/" + s.user, "--setenv=XDG_SESSION_CLASS=user",
		"--setenv=LANG=C.UTF-8", "--setenv=LIBGL_ALWAYS_SOFTWARE=1",
	}
	for _, variable := range environment {
		args = append(args, "--setenv="+variable)
	}
	s.Run(append(args, command...)...)
}

// dropIn adds configuration to a unit of user managers.
func (s *seat) dropIn(unit, text string) {
	s.t.Helper()
	cmd := s.Command("root", "sh", "-ec", `mkdir --parents "$1"; cat >"$1/desktop.conf"`, "sh",
		"/etc/systemd/user/"+unit+".d")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// awaitServer waits until a notification server answers.
func (s *seat) awaitServer() {
	s.t.Helper()
	s.await("a notification server", func() bool {
		_, status := s.try("busctl", "--user", "call", "org.freedesktop.Notifications", "/org/freedesktop/Notifications",
			"org.freedesktop.Notifications", "GetServerInformation")
		return status == 0
	})
}

// xvfb is an X server that draws into memory, display :7.
type xvfb struct{}

// start starts the X server.
func (xvfb) start(s *seat) {
	s.t.Helper()
	s.Run("systemd-run", "--quiet", "--unit=display", "--uid="+s.user, "Xvfb", ":7", "-screen", "0", "1024x640x24",
		"-nolisten", "tcp")
	s.await("the X server", func() bool {
		_, status := s.try("env", "DISPLAY=:7", "xdotool", "getmouselocation")
		return status == 0
	})
}

func (xvfb) picture(s *seat) []byte {
	s.t.Helper()
	return s.output("import", "-display", ":7", "-window", "root", "png:-")
}

func (xvfb) point(s *seat, x, y int) {
	s.t.Helper()
	s.do("env", "DISPLAY=:7", "xdotool", "mousemove", strconv.Itoa(x), strconv.Itoa(y))
}

func (xvfb) click(s *seat) {
	s.t.Helper()
	s.do("env", "DISPLAY=:7", "xdotool", "click", "1")
}

func (xvfb) press(s *seat, text string) {
	s.t.Helper()
	s.do("env", "DISPLAY=:7", "xdotool", "type", "--delay", "50", text)
	s.do("env", "DISPLAY=:7", "xdotool", "key", "Return")
}
