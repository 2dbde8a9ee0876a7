package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/unitname"
)

// straysOf returns the processes outside of each session's scope, by the session's id. It returns
// none if corrald cannot list them.
func (c *ctl) straysOf(ctx context.Context) map[string][]dbusapi.Stray {
	by := map[string][]dbusapi.Stray{}
	all, _ := c.client.ListStrays(ctx)
	for _, s := range all {
		by[s.Session] = append(by[s.Session], s)
	}
	return by
}

// strayPlace returns the unit that a process is in, or else its control group.
func strayPlace(s dbusapi.Stray) string {
	if unit := strayUnit(s); unit != "" {
		return unit
	}
	return s.ControlGroup
}

// strayUnit returns the unit of the user manager that contains a process and that can be stopped to
// end it, "" if there is none.
func strayUnit(s dbusapi.Stray) string {
	last := path.Base(s.ControlGroup)
	is := strings.HasSuffix(last, ".scope") || strings.HasSuffix(last, ".service")
	for _, other := range []string{"init.scope", "session-", "user@", unitname.ScopePrefix} {
		is = is && !strings.HasPrefix(last, other)
	}
	if !is || strings.HasPrefix(s.ControlGroup, "/system.slice/") {
		return ""
	}
	return last
}

// strayRemedy returns the command that ends a process.
func strayRemedy(s dbusapi.Stray) string {
	if unit := strayUnit(s); unit != "" {
		return "systemctl --user stop " + unit
	}
	return fmt.Sprintf("kill %d", s.PID)
}

// printStrays prints the processes outside of a session's scope.
func (c *ctl) printStrays(strays []dbusapi.Stray) {
	if len(strays) == 0 {
		return
	}
	text := "1 process has left its scope and does not end with it"
	if len(strays) > 1 {
		text = fmt.Sprintf("%d processes have left its scope and do not end with it", len(strays))
	}
	fmt.Fprintf(c.out, "%13s: %s\n", "Outside", c.paint(wording.Yellow, c.fit(text, statusIndent)))
	for _, s := range strays {
		fmt.Fprintf(c.out, "%*s%s\n", statusIndent, "",
			c.fit(wording.Printable(fmt.Sprintf("%d %s (%s)", s.PID, s.Name, strayPlace(s))), statusIndent))
	}
}

// warnAboutStrays prints which processes of the ended sessions are still running.
func (c *ctl) warnAboutStrays(ended []string, strays map[string][]dbusapi.Stray) {
	for _, id := range slices.Sorted(slices.Values(ended)) {
		for _, s := range strays[id] {
			c.warn(fmt.Sprintf("process %d (%s) of %q is still running: it left its scope for %s", s.PID, s.Name, id,
				strayPlace(s)), strayRemedy(s))
		}
	}
}

// checkStrays looks for processes that were started by agents and will not end with them.
func (e *examination) checkStrays(ctx context.Context) []finding {
	if e.bus == nil || !e.hasOwner(ctx, dbusapi.BusName) {
		return nil
	}
	bus, err := client.Connect(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = bus.Close() }()
	strays, err := bus.ListStrays(ctx)
	if err != nil {
		return nil
	}
	var findings []finding
	for _, s := range strays {
		findings = append(findings, note(strayRemedy(s),
			"process %d (%s) of session %s has left its scope for %s: it does not end with the session",
			s.PID, s.Name, s.Session, strayPlace(s)))
	}
	if len(findings) == 0 {
		findings = append(findings, ok("every process of a session is in its scope"))
	}
	return findings
}
