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
	"github.com/corrald/corral/internal/unitname"
)

// enableTimeout bounds how long systemd may take to enable the daemon.
const enableTimeout = 30 * time.Second

// loginEnabler enables corrald.service for its user, so that systemd starts it at login. Packages
// do not enable the unit for all users; a user who has sessions wants them restored at login.
type loginEnabler struct {
	*parts
	mu sync.Mutex // calls come from the goroutines of the D-Bus server
}

// enable enables the unit once, when the first session is created: a user who disables it later has
// decided so. It enables the unit again for a session that is to be started at login (required).
func (l *loginEnabler) enable(required bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := filepath.Join(l.state, "login")
	if _, err := os.Lstat(done); !errors.Is(err, fs.ErrNotExist) && !required {
		return
	}
	ctx, cancel := deadline.Context(context.Background(), enableTimeout)
	defer cancel()
	enabled, err := l.units.EnableUnit(ctx, unitname.Daemon)
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
