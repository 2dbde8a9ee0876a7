# Without the daemon the saved state is shown as what it is, and never that something runs.

$ corralctl run -q --id live -- sleep 1000
$ corralctl run -q --id done --wait -- true
$ corralctl run -q --id never --no-start -- true

$ kill -KILL $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2)
$ while busctl --user call org.freedesktop.DBus / org.freedesktop.DBus NameHasOwner s io.github.corrald.Corral1 | grep -q true; do :; done

$ corralctl list
ID    AGENT   STATE                                  ACTIVITY SINCE WORKSPACE
done  command completed                              -        …s    ~/src/shop
live  command state unknown (corrald is not running) -        …s    ~/src/shop
never command created                                -        …s    ~/src/shop

3 sessions.
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl status live
○ live
        State: state unknown (corrald is not running)
        Agent: command
      Command: sleep 1000
    Workspace: ~/src/shop
         Unit: app-corral-command-live.scope
         Runs: 1
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl status
○ corrald is not running
     Sessions: 3 saved in ~/state/corral
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl stop live
corralctl: cannot stop "live": corrald is not running
hint: systemctl --user start corrald
[exit 5]

$ corralctl run -- true
corralctl: cannot run "command": corrald is not running
hint: systemctl --user start corrald
[exit 5]

$ corralctl version
corralctl …
corrald is not running

# Without a bus, as in a shell of su, doctor knows how one is come by.
$ DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent corralctl stop live
corralctl: cannot stop "live": cannot connect to the session bus: dial unix /nonexistent: connect: no such file or directory
hint: corralctl doctor
[exit 5]
$ DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent corralctl agents
corralctl: cannot list agents: cannot connect to the session bus: dial unix /nonexistent: connect: no such file or directory
hint: corralctl doctor
[exit 5]
