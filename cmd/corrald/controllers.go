package main

import (
	"context"
	"path/filepath"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/unitname"
)

// controllersFileName is the name of a file in $XDG_RUNTIME_DIR/corral that contains the id of
// systemd's connection to the bus when a daemon last completed abandonLost. No session's directory
// has this name, because a session id cannot start with a dot.
const controllersFileName = ".controllers"

const maxConnectionID = 512 // bytes

// abandonLost releases the scopes whose controller, an earlier daemon, no longer exists: systemd
// would leave it to that controller to stop them. It stops released scopes itself.
//
// systemd misses the end of a controller only while it is not connected to the bus. If it has had
// the same connection since the last time, the scopes need not be examined, which takes a call for
// each of them.
func (d *parts) abandonLost(ctx context.Context) {
	path := filepath.Join(d.runtime, controllersFileName)
	id, err := d.units.SystemdConnection(ctx)
	if examined, _ := safefile.Read(path, maxConnectionID); err == nil && string(examined) == id {
		return
	}
	var names []string
	if err == nil {
		names, err = d.units.AbandonLost(ctx, unitname.Scopes)
	}
	if len(names) > 0 {
		d.log.Warn("released scopes whose controller has exited", "units", names)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		d.log.Warn("cannot determine which process controls the scopes", "err", err)
		return
	}
	if err := atomicfile.Write(path, []byte(id), 0o600); err != nil {
		d.log.Warn("cannot record that the controllers of the scopes were examined; "+
			"the next corrald examines them again", "err", err)
	}
}
