package config

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with testdata/NAME, or replaces that file with -update.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

// tree returns the configuration directories of a golden input, in the order of Dirs.
func tree(name string) []string {
	return []string{
		"testdata/" + name + "/home", "testdata/" + name + "/etc", "testdata/" + name + "/none", "testdata/" + name + "/lib",
	}
}

func lines(warnings []Warning) string {
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&b, w)
	}
	return b.String()
}

// write creates files below a new directory, and links to /dev/null where the content is "null". It
// returns the path of the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if text == "null" {
			require.NoError(t, os.Symlink("/dev/null", path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestLoad(t *testing.T) {
	c, warnings, err := Load(tree("conf"))
	require.NoError(t, err)
	golden(t, "conf.golden", fmt.Sprintf("%+v\n\n%s", c, lines(warnings)))
}

func TestLoad_ReturnsDefaultsWithoutFiles(t *testing.T) {
	c, warnings, err := Load([]string{t.TempDir(), "/no/such/directory"})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, Default(), c)
}

func TestLoad_ReadsEveryKey(t *testing.T) {
	root := write(t, map[string]string{"corral.conf": strings.Join([]string{"[Corral]",
		"StopTimeoutSec=1", "LogMaxSize=2M", "IdleAfterSec=2", "IdleSuspendSec=1h", "MaxSessions=4", "MaxRunning=3",
		"LoginShell=no",
		"TmuxConfig=/5", "DetachKey=F12", "Terminal=foot -e", "Notifications=no", "Notify=failed waiting",
		"NotifyUrgency=failed:critical", "TmuxMessages=no", "NotifyCompletedSec=5min", "OnLimit=continue",
		"ContinueText=go on", "AgentsMayControl=none", "PortRange=3000-3999", "SuspendedRetentionSec=6",
		"ResumableRetentionSec=7", "FailedRetentionSec=8", "UnseenRetentionSec=11", "CompletedRetentionSec=9",
		"StoppedRetentionSec=infinity"}, "\n")})
	c, warnings, err := Load([]string{root})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, Config{
		StopTimeout: time.Second, LogMaxSize: 2 << 20, IdleAfter: 2 * time.Second, IdleSuspend: time.Hour, MaxSessions: 4,
		MaxRunning: 3,
		TmuxConfig: "/5", DetachKey: "F12", Terminal: "foot -e",
		Notify: []string{"failed", "waiting"}, NotifyUrgency: Urgencies{"failed": "critical"}, TmuxMessages: false,
		NotifyAfter: 5 * time.Minute, OnLimit: LimitContinue, ContinueText: "go on", PortRange: PortRange{3000, 3999},
		AgentsMayControl: ControlNone,
		Retention: Retention{
			6 * time.Second, 7 * time.Second, 8 * time.Second, 11 * time.Second, 9 * time.Second, Infinity,
		},
	}, c)
}

// TestDefault_MatchesTheManual compares the time spans that the manual documents.
func TestDefault_MatchesTheManual(t *testing.T) {
	c := Default()
	assert.Equal(t, 3*time.Second, c.IdleAfter)
	assert.Equal(t, Infinity, c.IdleSuspend)
	assert.Equal(t, Retention{Suspended: 7 * day, Resumable: 30 * day, Failed: day, Unseen: 7 * day, Completed: 7 * day,
		Stopped: 7 * day}, c.Retention)
}

func TestMask_HidesFilesInLaterDirectories(t *testing.T) {
	vendor := write(t, map[string]string{
		"corral.conf":                 "[Corral]\nMaxSessions=1\n",
		"corral.conf.d/a.conf":        "[Corral]\nIdleAfterSec=1\n",
		"agents/gone.agent":           "[Agent]\nCommand=gone\n",
		"agents/here.agent":           "[Agent]\nCommand=here\n",
		"agents/here.agent.d/a.conf":  "[Agent]\nCommand=not this\n",
		"agents/command.agent":        "[Environment]\nSet=A=1\n",
		"agents/gone.agent.d/zz.conf": "[Agent]\nDescription=x\n",
	})
	admin := write(t, map[string]string{
		"corral.conf":                "null",
		"corral.conf.d/a.conf":       "null",
		"agents/gone.agent":          "null",
		"agents/here.agent.d/a.conf": "null",
		"agents/command.agent":       "null",
	})
	c, warnings, err := Load([]string{admin, vendor})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, Default(), c)

	agents, warnings := LoadAgents([]string{admin, vendor})
	assert.Empty(t, warnings)
	assert.Len(t, agents, 2)
	assert.Equal(t, []string{"here"}, agents["here"].Command)
	assert.Empty(t, agents["here"].DropIns)
	assert.Equal(t, Agent{Name: "command", IdSource: "none", Type: "simple", StopTarget: "agent",
		Status: Status{ReadyTimeout: defaultReadyTimeout}}, agents["command"], "it cannot be hidden")
}

func TestLoad_ReportsUnreadableFiles(t *testing.T) {
	root := write(t, map[string]string{
		"corral.conf/x":                "in a directory of this name",
		"corral.conf.d/10.conf/x":      "here too",
		"corral.conf.d/20.conf":        "[Corral]\nMaxSessions=7\n",
		"agents/dir.agent/x":           "and here",
		"agents/large.agent":           strings.Repeat("#", maxFileSize+1),
		"agents/binary.agent":          "[Agent]\nCommand=a\nDescription=\xff\nDescription=\x00\n",
		"agents/good.agent":            "\ufeff[Agent]\r\nCommand=a \\\r\n b\r\n",
		"agents/good.agent.d/bad.conf": strings.Repeat("#", maxFileSize+1),
	})
	c, warnings, err := Load([]string{root})
	require.ErrorContains(t, err, "corral.conf is not a regular file")
	assert.Equal(t, 7, c.MaxSessions)
	assert.Len(t, warnings, 1)

	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, []string{"a", "b"}, agents["good"].Command)
	assert.Equal(t, []string{"a"}, agents["binary"].Command)
	assert.NotContains(t, agents, "dir")
	assert.NotContains(t, agents, "large")
	text := strings.ReplaceAll(lines(warnings), root, "")
	assert.Contains(t, text, "/agents/binary.agent:3: line is not valid UTF-8 text, ignored\n")
	assert.Contains(t, text, "/agents/binary.agent:4: line is not valid UTF-8 text, ignored\n")
	assert.Contains(t, text, "dir.agent is not a regular file")
	assert.Contains(t, text, "large.agent is larger than 1048576 bytes")
	assert.Contains(t, text, "bad.conf is larger than 1048576 bytes")
	assert.Len(t, warnings, 5)
}

func TestDirs(t *testing.T) {
	system := []string{"/etc/corral", "/usr/local/lib/corral", "/usr/lib/corral"}
	for name, c := range map[string]struct{ xdg, home, want string }{
		"XDG_CONFIG_HOME":           {"/x", "/home/u", "/x/corral"},
		"the default":               {"", "/home/u", "/home/u/.config/corral"},
		"a relative path":           {"x", "/home/u", "/home/u/.config/corral"},
		"no home directory":         {"", "", ""},
		"a relative home directory": {"", "relative", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", c.xdg)
			t.Setenv("HOME", c.home)
			want := system
			if c.want != "" {
				want = append([]string{c.want}, system...)
			}
			assert.Equal(t, want, Dirs())
		})
	}
}

func TestReadUnitFile_WrapsItsCause(t *testing.T) {
	_, _, err := readUnitFile("/no/such/file")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func FuzzParseUnit(f *testing.F) {
	for _, seed := range []string{
		"[Corral]\nStopTimeoutSec=1\n", "[A\\\n#c\nB]\n", "\ufeff[Corral]\r\nA=\\", "X-A=1\n[X-B]\nC", "[Corral]\n=\n\\\\\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		assignments, warnings := parseUnit("f", b, "Corral")
		n := strings.Count(string(b), "\n") + 1
		for _, a := range assignments {
			if a.section != "Corral" || a.key == "" || a.line < 1 || a.line > n || strings.Contains(a.value, "\n") {
				t.Fatalf("bad assignment %+v", a)
			}
		}
		for _, w := range warnings {
			if w.Line < 1 || w.Line > n || strings.Contains(w.String(), "\n") {
				t.Fatalf("bad warning %q", w)
			}
		}
	})
}
