//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// point is a failpoint that was selected in the environment.
type point struct {
	name   string
	signal unix.Signal
	left   atomic.Int64 // remaining hits before the signal
}

var points = []*point{read("CORRAL_FAILPOINT", unix.SIGKILL), read("CORRAL_FAILSTOP", unix.SIGSTOP)}

func read(variable string, signal unix.Signal) *point {
	name, count, _ := strings.Cut(os.Getenv(variable), ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	p := &point{name: name, signal: signal}
	p.left.Store(n)
	return p
}

// Hit kills or stops the process if the step is the selected one. It does not return after SIGKILL:
// the kernel may need a moment to end the process.
func Hit(name string) {
	for _, p := range points {
		if p.name != name || p.left.Add(-1) != 0 {
			continue
		}
		_ = unix.Kill(os.Getpid(), p.signal)
		if p.signal == unix.SIGKILL {
			select {}
		}
	}
}
