package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/deadline"
)

// enableTimeout bounds how long systemd may take to enable the daemon.
const enableTimeout = 30 * time.Second

// loginStart enables corrald.service for its user, so that systemd starts it at login. Packages do
// not enable it for everybody; a person who has sessions wants them back.
type loginStart struct {
	*parts
	mu sync.Mutex // calls come from the goroutines of the bus
}

// enable enables the unit when the first session is created, once: somebody who disables it again
// has decided. A session that is to begin at login (wished) needs it in any case.
func (l *loginStart) enable(wished bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := filepath.Join(l.state, "login")
	if _, err := os.Lstat(done); !errors.Is(err, fs.ErrNotExist) && !wished {
		return
	}
	ctx, cancel := deadline.Context(context.Background(), enableTimeout)
	defer cancel()
	enabled, err := l.units.EnableUnit(ctx, "corrald.service")
	if err != nil {
		l.log.Warn("cannot have systemd start corrald at login", "err", err)
		return
	}
	if enabled {
		l.log.Info("systemd will start corrald at login; to undo this: systemctl --user disable corrald.service")
	}
	if err := atomicfile.Write(done, nil, 0o600); err != nil {
		l.log.Warn("cannot record that corrald.service was enabled", "err", err)
	}
}
