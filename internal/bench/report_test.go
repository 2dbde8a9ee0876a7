package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReport_ReplacesTheMeasuredSections(t *testing.T) {
	const (
		first    = "# Page\n<!-- measured: a -->\nold\n<!-- end of measured -->\ntext\n"
		report   = first + "<!-- measured: b -->\n<!-- end of measured -->\n"
		measured = "<!-- measured: b -->\nnew\n<!-- end of measured -->\n"
	)
	text, err := replaceSections(report, measured)
	require.NoError(t, err)
	assert.Equal(t, first+measured, text)

	_, err = replaceSections("# Page\n", measured)
	assert.EqualError(t, err, `it has no place for "<!-- measured: b -->"`)
}

func TestThousands(t *testing.T) {
	for n, text := range map[int]string{7: "7", 1000: "1,000", 5023: "5,023", 1234567: "1,234,567"} {
		assert.Equal(t, text, thousands(n))
	}
}
