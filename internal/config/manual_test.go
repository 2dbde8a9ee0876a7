package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The manual pages document every key that the code reads, and no others.
func TestManual_ListsEveryConfigurationKey(t *testing.T) {
	c := Default()
	for page, known := range map[string]parsers{
		"corral.conf.5.md": c.parsers(), "corral.agent.5.md": newAgentLoader("a").parsers,
		"corral.sandbox.5.md":    new(Sandbox).parsers(),
		"corral.repository.5.md": new(Repository).parsers(),
	} {
		text, err := os.ReadFile("../../docs/man/" + page)
		require.NoError(t, err)
		var keys []string
		for name := range known {
			keys = append(keys, name[strings.IndexByte(name, '.')+1:])
		}
		assert.ElementsMatch(t, keys, captured(`(?m)^([A-Z][A-Za-z]+)=$`, string(text)), page)
	}
}

func captured(pattern, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
