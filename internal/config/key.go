package config

import (
	"fmt"
	"regexp"
	"strings"
)

// keyPattern matches the names, as tmux(1) spells them in KEY BINDINGS, of keys that every terminal
// tells from others and that no program needs for plain text: function keys and keys for moving,
// with any modifiers, and characters with Ctrl or Alt.
var keyPattern = regexp.MustCompile(`^([CMS]-)*(F[1-9]|F1[0-2]|IC|DC|Insert|Delete|Home|End|NPage|PageDown|PgDn|PPage|PageUp|PgUp|BTab|Up|Down|Left|Right)$` +
	`|^(C-|C-M-|M-C-)([A-Za-z@\\\]^_]|Space)$|^M-([!-~]|Space|Enter|Tab|BSpace)$`)

// taken are keys that a terminal does not tell from others, or that every program needs.
var taken = map[string]string{"C-m": "Enter", "C-i": "Tab", "C-h": "Backspace", "C-c": "interrupt", "C-d": "end of file"}

// detachKey reads the value of DetachKey=: the name of a key, or none.
func detachKey(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	if !keyPattern.MatchString(s) {
		return "", fmt.Errorf("invalid key %q: expected a name of tmux(1) such as C-q, M-d or F12, or none", s)
	}
	if what := taken["C-"+strings.ToLower(strings.TrimPrefix(s, "C-"))]; what != "" {
		return "", fmt.Errorf("invalid key %q: programs need it (%s)", s, what)
	}
	return s, nil
}
