package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// completionCases are lines typed in a shell, with Tab as →, and the arguments that corralctl is
// then run with.
var completionCases = []struct{ line, words string }{
	{"corralctl lin→", "linger"},
	{"corralctl linger o→f→", "linger off"},
	{"corralctl stop al→", "stop alive"},
	{"corralctl logs -n5 al→", "logs -n5 alive"},
	{"corralctl -q logs --lines=5 al→", "-q logs --lines=5 alive"},
	{"corralctl run -- basena→", "run -- basename"},
	{"corralctl completion pow→", "completion powershell"},
	{"corralctl start do→", "start done"},
	{"corralctl show -p Atte→M→ alive", "show -p AttentionMessage alive"},
	{"corralctl list --no-l→", "list --no-legend"},
	{"corralctl list --state=suspe→", "list --state=suspended"},
	{"corralctl list --state suspe→", "list --state suspended"},
	{"corralctl list --state=failed,suspe→", "list --state=failed,suspended"},
	{"corralctl kill -s SIGWIN→ alive", "kill -s SIGWINCH alive"},
	{"corralctl set-property alive TasksM→10", "set-property alive TasksMax=10"},
	{"corralctl run -p MemoryHi→1G say→", "run -p MemoryHigh=1G sayer"},
	{"corralctl run sayer@→", "run sayer@work"},
	{"corralctl run sayer@wo→", "run sayer@work"},
	{"corralctl cat sayer@w→", "cat sayer@work"},
	{"corralctl run --dir=sub→", "run --dir=subdirectory"},
	{"corralctl run --dir sub→", "run --dir subdirectory"},
	{"corralctl report wai→--reas→perm→", "report waiting --reason permission"},
}

// testShells has the command and the files that start each shell on a terminal with the
// completions.
var testShells = map[string]struct {
	command string
	files   map[string]string // in the home directory
}{
	"bash": {"bash --noprofile --rcfile ~/.testrc -i", map[string]string{".testrc": `
source /usr/share/bash-completion/bash_completion
source "$COMPLETIONS/corralctl.bash"
bind 'set enable-bracketed-paste off'
corralctl() { if [[ $1 == __complete* ]]; then command corralctl "$@"; else echo "$*" >>~/typedOutput; fi; }
PS1='ready> '`}},
	"zsh": {"env ZDOTDIR=$HOME zsh -d -i", map[string]string{".zshrc": `
fpath=($COMPLETIONS $fpath)
autoload -Uz compinit && compinit -u -D
unset zle_bracketed_paste
corralctl() { if [[ $1 == __complete* ]]; then command corralctl "$@"; else echo "$*" >>~/typedOutput; fi; }
PS1='ready> '`}},
}

func TestCompletion_CompletesTypedLines(t *testing.T) {
	stage := completionStage(t)
	for name, shell := range testShells {
		t.Run(name, func(t *testing.T) {
			for file, text := range shell.files {
				require.NoError(t, os.WriteFile(filepath.Join(stage.home, file), []byte(text+"\n"), 0o600))
			}
			typedOutput := filepath.Join(stage.home, "typedOutput")
			var keys, want strings.Builder
			for _, c := range completionCases {
				keys.WriteString(strings.ReplaceAll(c.line, "→", "\t") + "\r")
				want.WriteString(c.words + "\n")
			}
			screen := stage.run(t, `script -qec "`+shell.command+`" /dev/null`, keys.String()+"exit\r")
			got, err := os.ReadFile(typedOutput)
			require.NoError(t, err, screen)
			require.NoError(t, os.Remove(typedOutput))
			assert.Equal(t, want.String(), unspaced(string(got)), screen)
		})
	}
}

// unspaced removes what differs between shells: trailing and doubled blanks, and the slash after a
// directory.
func unspaced(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSuffix(strings.Join(strings.Fields(line), " "), "/")+"\n")
	}
	return strings.Join(lines, "")
}

// TestCompletion_OffersCandidatesInFish: fish prints its candidates without a terminal.
func TestCompletion_OffersCandidatesInFish(t *testing.T) {
	stage := completionStage(t)
	for line, want := range map[string]string{
		"corralctl lin":                        "linger",
		"corralctl linger ":                    "on off",
		"corralctl stop ":                      "alive",
		"corralctl start ":                     "done",
		"corralctl list --state=suspe":         "--state=suspended",
		"corralctl list --state failed,suspe":  "failed,suspended",
		"corralctl list --no-l":                "--no-legend",
		"corralctl run sayer@":                 "sayer@work",
		"corralctl run --dir=sub":              "--dir=subdirectory/",
		"corralctl run --dir sub":              "subdirectory/",
		"corralctl set-property alive TasksM":  "TasksMax=",
		"corralctl report waiting --reason=pe": "--reason=permission",
	} {
		out := stage.run(t, `fish --no-config -c 'source $COMPLETIONS/corralctl.fish; complete -C "'"$LINE"'"'`, "",
			"LINE="+line)
		var words []string
		for row := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimRight(row, "\n"), "\t")
			words = append(words, word)
		}
		assert.ElementsMatch(t, strings.Fields(want), words, line)
	}
	out := stage.run(t, `fish --no-config -c 'source $COMPLETIONS/corralctl.fish; complete -C "corralctl run -- ech"'`, "")
	assert.Contains(t, out, "echo", "a command of the system")
}

// completionStage returns a stage with a running and an ended session, an agent and a directory.
func completionStage(t *testing.T) *storyRun {
	t.Helper()
	stage := newStoryRun(t)
	completions, err := filepath.Abs("../../packaging/completions")
	require.NoError(t, err)
	stage.environment = append(stage.environment, "COMPLETIONS="+completions, "TERM=dumb", "COLUMNS=200")
	stage.run(t,
		`mkdir -p subdirectory ~/config/corral/agents ~/config/corral/accounts &&
		printf '[Agent]\nCommand=echo\n' >~/config/corral/agents/sayer.agent &&
		printf '[Environment]\nEnvironmentFile=-%%E/corral/accounts/%%I.env\n' >~/config/corral/agents/sayer@.agent &&
		touch ~/config/corral/accounts/work.env &&
		corralctl run -q --id alive -- sleep 1000 && corralctl run -q --id done --wait -- true`, "")
	return stage
}

func (s *storyRun) run(t *testing.T, command, input string, environment ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = filepath.Join(s.home, "src/shop")
	cmd.Env = append(append(s.environment, "PWD="+cmd.Dir), environment...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}

// TestCompletion_OffersOnlyValidWords: corralctl accepts every completed word.
func TestCompletion_OffersOnlyValidWords(t *testing.T) {
	c, _ := capture(t)
	c.commands = c.newCommands()
	for _, v := range c.verbChoices() {
		cmd, err := c.findVerb(v.word)
		require.NoError(t, err)
		completing, output := capture(t)
		completing.err = io.Discard
		require.NoError(t, completing.dispatch(t.Context(), []string{"__completeNoDesc", v.word, "--"}))
		options := strings.Fields(output())
		assert.Greater(t, len(options), 1, v.word)
		for _, option := range options {
			if name, ok := strings.CutPrefix(option, "--"); ok {
				assert.NotNil(t, cmd.Flag(name), option)
			}
		}
	}
	for _, signal := range signalNames() {
		_, err := parseSignal(signal)
		require.NoError(t, err)
	}
	for _, table := range []map[string]func(dbusapi.SessionRow) bool{applicable, appliesToAll} {
		for name := range table {
			_, err := c.findVerb(name)
			require.NoError(t, err)
		}
	}
	for _, program := range programsInPath("tru") {
		assert.True(t, strings.HasPrefix(program, "tru"), program)
	}
	assert.Contains(t, programsInPath("tru"), "true")
}
