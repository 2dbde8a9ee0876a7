package effects

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
)

// FuzzLastID checks that an id is only accepted if it can be used in a command.
func FuzzLastID(f *testing.F) {
	for _, seed := range []string{"c-17\n", "warning: x\r\n c-17 \r\n\n", "--flag\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, printed string) {
		if id, ok := lastID(printed); ok {
			require.True(t, config.ValidConversationID(id))
			require.Contains(t, printed, id)
		}
	})
}
