package config

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The manual pages document every key that the code reads, and no others.
func TestManual_ListsEveryConfigurationKey(t *testing.T) {
	for _, c := range []struct {
		sources    []string
		keys, page string
	}{
		{[]string{"config.go"}, `case "([A-Z][A-Za-z]+)":`, "corral.conf.5.md"},
		{[]string{"agent.go", "status.go"}, `case "[A-Z][a-z]+\.([A-Z][A-Za-z]+)":`, "corral.agent.5.md"},
	} {
		var code []byte
		for _, source := range c.sources {
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			code = append(code, text...)
		}
		page, err := os.ReadFile("../../docs/man/" + c.page)
		require.NoError(t, err)
		keys := captured(c.keys, string(code))
		require.NotEmpty(t, keys)
		assert.ElementsMatch(t, keys, captured(`(?m)^([A-Z][A-Za-z]+)=$`, string(page)), c.page)
	}
}

func captured(pattern, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
