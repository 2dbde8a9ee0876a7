package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/client"
)

func TestReadKeys_DecodesTerminalInput(t *testing.T) {
	for text, want := range map[string][]key{
		"\x1b":                    {keyCancel},
		"\x1b[A\x1b[B\x1bOAfix\r": {keyUp, keyDown, keyUp, 'f', 'i', 'x', keyEnter},
		"\x1b[1;5C\x1b[200~x":     {'x'},
		"\x03":                    {keyCancel},
		"a\x7f\x15\t\x10":         {'a', keyBackspace, keyClear, keyDown, keyUp},
		"漢\xff\x01":               {'漢'},
		"":                        nil,
	} {
		assert.Equal(t, want, readKeys([]byte(text)), "%q", text)
	}
}

func TestPicker_FiltersAndSelects(t *testing.T) {
	sessions := []client.Session{{Id: "api"}, {Id: "docs", WorkingDirectory: "/src/Shop"},
		{Id: "fix-auth", Agent: "claude"}, {Id: "fix-docs"}}
	for keys, want := range map[string]string{
		"\r": "api", "\x1b[B\r": "docs", "\x1b[B\x1b[B\x1b[B\x1b[B\x1b[B\r": "fix-docs", "\x1b[A\r": "api",
		"fix\r": "fix-auth", "fix\t\r": "fix-docs",
		"shop\r": "docs", "claude\r": "fix-auth", "fix docs\r": "fix-docs", "x!\x7f\r": "fix-auth", "nothing\r\x15\r": "api",
		"nothing\r\x03": "",
	} {
		p := &picker{sessions: sessions, height: 2, width: 80}
		over, id := false, "?"
		for _, k := range readKeys([]byte(keys)) {
			assert.False(t, over, "%q", keys)
			over, id = p.press(k)
		}
		assert.True(t, over, "%q", keys)
		assert.Equal(t, want, id, "%q", keys)
	}
}
