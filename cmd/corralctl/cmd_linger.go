package main

import (
	"context"
	"errors"
	"os/user"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/logind"
)

// passwordTimeout bounds how long a person may take to enter the password that the login manager
// asks for.
const passwordTimeout = 2 * time.Minute

var lingerVerb = verb{
	name: "linger", args: "[on|off]", summary: "Show or set whether sessions keep running after logout",
	options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		if len(args) > 1 {
			return usagef("linger", "linger: expected on or off, not %s", wording.Plural(len(args), "word"))
		}
		if c.isRemote() {
			return c.execHost(c.onlyHost(), "linger", args...)
		}
		if len(args) == 1 {
			on, err := config.ParseBool(args[0])
			if err != nil {
				return usagef("linger", "invalid argument %q: expected on or off", args[0])
			}
			if err := setLinger(ctx, on); err != nil {
				return lingerError(on, err)
			}
		}
		return c.printLinger(logind.IsLingering(), len(args) == 0)
	}),
}

func (c *ctl) printLinger(on, asked bool) error {
	switch {
	case c.wantsJSON():
		return c.printJSON(map[string]bool{"Lingering": on})
	case c.quiet:
	case on:
		c.print("Lingering is on: sessions keep running when you log out, and corrald starts at boot.\n")
	case asked:
		c.print("Lingering is off: sessions end when you log out. To keep them running: corralctl linger on\n")
	default:
		c.print("Lingering is off: sessions end when you log out.\n")
	}
	return nil
}

func setLinger(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, passwordTimeout)
	defer cancel()
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		return err
	}
	defer func() { _ = manager.Close() }()
	return manager.SetLinger(ctx, on)
}

// lingerError returns why lingering was not changed, and as the hint a command for an
// administrator, who may always change it.
func lingerError(on bool, err error) error {
	f := &failure{code: exitFailed, message: "cannot turn lingering off: ", hint: "sudo loginctl disable-linger"}
	if on {
		f.message, f.hint = "cannot turn lingering on: ", "sudo loginctl enable-linger"
	}
	if u, err := user.Current(); err == nil {
		f.hint += " " + u.Username
	}
	var refused dbus.Error
	switch {
	case !errors.As(err, &refused):
		f.message += err.Error()
	case strings.HasSuffix(refused.Name, ".ServiceUnknown") || strings.Contains(refused.Name, ".Spawn."):
		f.message, f.hint = f.message+"no login manager (systemd-logind) runs here", ""
	case strings.HasSuffix(refused.Name, ".AccessDenied"),
		strings.HasSuffix(refused.Name, ".InteractiveAuthorizationRequired"):
		f.message += "the login manager does not allow it without an administrator"
	default:
		f.message += refused.Error()
	}
	return f
}
