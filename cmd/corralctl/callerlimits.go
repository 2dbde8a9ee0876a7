package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
)

// controllerOf maps the unit properties of these limits to the controllers that enforce them.
var controllerOf = map[string]string{
	"MemoryMax": "memory", "MemoryHigh": "memory", "MemorySwapMax": "memory", "CPUQuota": "cpu", "AllowedCPUs": "cpuset",
}

// addCallerLimits adds to r.properties, with --same-limits, the limits of this process that do not
// apply to the session because it runs in a control group of the user's manager. Without the
// option, it prints a warning about those of a job: a job's control group is not below that of the
// manager. An explicit -p has precedence.
func (r *runOptions) addCallerLimits(ctx context.Context, c *ctl) error {
	if c.isRemote() {
		return nil
	}
	limits, manager, err := callerLimits(ctx)
	if err != nil && r.sameLimits {
		return fmt.Errorf("cannot set the same limits: %w", err)
	}
	limits = slices.DeleteFunc(limits, func(limit string) bool {
		name, _, _ := strings.Cut(limit, "=")
		return slices.ContainsFunc(r.properties, func(set string) bool { return strings.HasPrefix(set, name+"=") })
	})
	switch {
	case r.sameLimits:
		r.properties = append(r.properties, limits...)
		return c.warnOfWithheld(limits, manager)
	case err == nil && len(limits) > 0 && !c.quiet && !isBelowManager(manager):
		c.warn("these limits of this process do not apply to the session: "+strings.Join(limits, " "),
			"corralctl run --same-limits")
	}
	return nil
}

// callerLimits returns the limits of this process, as unit properties, as far as they do not apply
// to everything of the user's manager, and the control group of the manager.
func callerLimits(ctx context.Context) (limits []string, manager string, err error) {
	own, err := proc.Cgroup(os.Getpid())
	if err != nil {
		return nil, "", err
	}
	// Most processes have none, so that the manager need not be asked.
	if limits, err = proc.Limits(own, "/"); err != nil || len(limits) == 0 {
		return nil, "", err
	}
	if manager, err = managerGroup(ctx); err == nil {
		limits, err = proc.Limits(own, manager)
	}
	return limits, manager, err
}

func managerGroup(ctx context.Context) (string, error) {
	address, err := client.BusAddress()
	if err != nil {
		return "", err
	}
	conn, err := bus.Dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return bus.SystemdProperty[string](ctx, conn, "ControlGroup")
}

// isBelowManager reports whether this process is in a control group of the user's manager, as in a
// terminal of a desktop.
func isBelowManager(manager string) bool {
	own, err := proc.Cgroup(os.Getpid())
	return err == nil && strings.HasPrefix(own+"/", manager+"/")
}

// warnOfWithheld prints a warning about limits whose controller is not delegated to the user.
func (c *ctl) warnOfWithheld(limits []string, manager string) error {
	if len(limits) == 0 {
		return nil
	}
	root, err := proc.CgroupRoot()
	if err != nil {
		return err
	}
	delegated, err := readWords(filepath.Join(root, manager, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cannot set the same limits: %w", err)
	}
	for _, limit := range limits {
		name, _, _ := strings.Cut(limit, "=")
		if !slices.Contains(delegated, controllerOf[name]) {
			c.warn(limit+" has no effect: the controller "+controllerOf[name]+" is not delegated to users",
				"sudo systemctl edit user@.service: set Delegate=cpu cpuset io memory pids in [Service]; then log in again")
		}
	}
	return nil
}
