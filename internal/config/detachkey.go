package config

import (
	"fmt"
	"regexp"
	"strings"
)

// keyPattern matches the key names (tmux(1), KEY BINDINGS) that can serve as a detach key, because
// every terminal sends them distinctly and no program needs them for plain text: function keys and
// cursor keys with any modifiers, and characters with Ctrl or Alt.
var keyPattern = regexp.MustCompile(`^([CMS]-)*(F[1-9]|F1[0-2]|IC|DC|Insert|Delete|Home|End|NPage|PageDown|PgDn|PPage|PageUp|PgUp|BTab|Up|Down|Left|Right)$` +
	`|^(C-|C-M-|M-C-)([A-Za-z@\\\]^_]|Space)$|^M-([!-~]|Space|Enter|Tab|BSpace)$`)

// reservedKeys are control characters that terminals cannot distinguish from other keys or that
// every program needs.
var reservedKeys = map[string]string{
	"C-m": "Enter", "C-i": "Tab", "C-h": "Backspace", "C-c": "interrupt", "C-d": "end of file",
}

// detachKey parses a value of DetachKey=: the name of a key, or none.
func detachKey(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	if !keyPattern.MatchString(s) {
		return "", fmt.Errorf("invalid key %q: expected a name of tmux(1) such as C-q, M-d or F12, or none", s)
	}
	if what := reservedKeys["C-"+strings.ToLower(strings.TrimPrefix(s, "C-"))]; what != "" {
		return "", fmt.Errorf("invalid key %q: programs need it (%s)", s, what)
	}
	return s, nil
}
