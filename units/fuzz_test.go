package units

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/bus"
)

var escaped = regexp.MustCompile(`_[0-9a-f]{2}`)

// FuzzUnitPath checks that each unit has its own object path, and that the path is valid in D-Bus.
// go-systemd escapes bytes below 0x10 ambiguously; systemd accepts none of them in a unit's name.
func FuzzUnitPath(f *testing.F) {
	for _, seed := range []string{"app-corral-claude-shop.scope", "1.scope", "a_b", "ä", "a/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < 0x10 }) {
			return
		}
		path := unitPath(name)
		assert.True(t, path.IsValid(), "%q", path)
		label := strings.TrimPrefix(string(path), string(bus.SystemdPath)+"/unit/")
		assert.Equal(t, name, escaped.ReplaceAllStringFunc(label, func(s string) string {
			b, _ := hex.DecodeString(s[1:])
			return string(b)
		}))
	})
}
