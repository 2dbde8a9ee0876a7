package propertysyntax

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFormat_IsTheInverseOfParse parses and formats each text.
func TestFormat_IsTheInverseOfParse(t *testing.T) {
	for _, text := range []string{
		"MemoryMax=2G", "MemoryMax=1500M", "MemoryMax=1000", "MemoryHigh=infinity", "MemoryMax=50%", "TasksMax=77",
		"TasksMax=infinity", "TasksMax=12.5%", "CPUWeight=30", "CPUWeight=idle", "CPUQuota=50%", "CPUQuota=250.5%",
		"CPUQuota=infinity", "RuntimeMaxSec=1h", "RuntimeMaxSec=infinity", "AllowedCPUs=0-3,5", "AllowedCPUs=9",
		"OOMPolicy=continue", "MemoryAccounting=yes", "SendSIGKILL=no",
	} {
		name, value, err := Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, text, Format(name, value))
	}
}
