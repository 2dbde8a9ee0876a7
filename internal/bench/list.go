package main

import (
	"context"
	"fmt"
	"time"

	"github.com/corrald/corral/dbusapi"
)

// list measures the duration of `corralctl list`. The floor is busctl with the simplest call that
// lists sessions.
func list(ctx context.Context, b *bench) ([]row, error) {
	r := row{name: fmt.Sprintf("corralctl list, %d sessions", b.sessions), unit: "ms", bar: ratioAtMost(3)}
	for range b.times(50) {
		before := time.Now()
		if err := run(ctx, b.program("corralctl"), "list"); err != nil {
			return nil, err
		}
		r.values = append(r.values, milliseconds(time.Since(before)))
		before = time.Now()
		err := run(ctx, "busctl", "--user", "call", dbusapi.BusName, string(dbusapi.ManagerPath), dbusapi.ManagerInterface,
			"ListSessions")
		if err != nil {
			return nil, err
		}
		r.floor = append(r.floor, milliseconds(time.Since(before)))
	}
	return []row{r}, nil
}
