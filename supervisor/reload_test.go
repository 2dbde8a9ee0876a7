package supervisor

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
)

// TestReload_SetsTheDetachKeyOfFewSessionsAtATime: each session costs a tmux command. Sessions that
// wait get the key of the last configuration only.
func TestReload_SetsTheDetachKeyOfFewSessionsAtATime(t *testing.T) {
	supervise(t, func(b *bed) {
		const sessions = 20
		for n := range sessions {
			b.start(fmt.Sprintf("s%d", n))
		}
		next := make(chan struct{})
		b.system.keySet = func() { <-next }
		reload := func(key string) {
			conf := config.Default()
			conf.DetachKey = key
			require.NoError(t, b.sup.Reload(conf, nil))
			synctest.Wait()
		}
		count := func(key string) (n int) {
			for _, line := range b.takeTrace() {
				if strings.HasPrefix(line, "0s set the detach key of ") && strings.HasSuffix(line, ": "+key) {
					n++
				}
			}
			return n
		}
		reload("C-q")
		assert.Equal(t, 4, count("C-q"))
		reload("C-t")
		close(next)
		synctest.Wait()
		assert.Equal(t, 2*sessions-4, count("C-t"))
	})
}
