# Without the daemon, the saved state is shown as such, and no session is shown as running.

$ corralctl run -q --id live -- sleep 1000
$ corralctl run -q --id done --wait -- true
$ corralctl run -q --id never --no-start -- true

$ corralctl run -q --id bad --wait -- sh -c 'exit 3'
[exit 3]
$ exact() { corralctl list --json=pretty bad done | grep '^    "\(Exec\|Result\|Reason\|Lifecycle\|Activity\|Labels\|Memory\|Tasks\|Timestamp\|StateChangeTimestamp"\)'; } && exact >~/exact

# A daemon that hangs delays nobody longer than --timeout.
$ kill -STOP $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2 | tee ~/daemon)
$ corralctl wait --timeout=100ms live
[exit 124]
$ kill -CONT $(cat ~/daemon)

$ kill -KILL $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2)
$ while busctl --user call org.freedesktop.DBus / org.freedesktop.DBus NameHasOwner s io.github.corrald.Corral1 | grep -q true; do :; done

$ corralctl list
ID    AGENT STATE                                  ACTIVITY SINCE WORKSPACE
bad   sh    failed                                 exit 3   …s    ~/src/shop
done  true  completed                              -        …s    ~/src/shop
live  sleep state unknown (corrald is not running) -        …s    ~/src/shop
never true  created                                -        …s    ~/src/shop

4 sessions, 1 failed.
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl list --json=short >~/out
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

# Ended sessions are shown as the daemon shows them.
$ exact() { corralctl list --json=pretty bad done | grep '^    "\(Exec\|Result\|Reason\|Lifecycle\|Activity\|Labels\|Memory\|Tasks\|Timestamp\|StateChangeTimestamp"\)'; } && exact 2>/dev/null | diff ~/exact -

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
     Sessions: 4 saved in ~/state/corral
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl status -n 0 --all 2>&1 | grep -c ' State:'
4

$ corralctl status nev nothing --json=short; corralctl status n* --json=short | tr '{' '\n' | grep -c '"Id"'
corralctl: cannot show the status of "nothing": no such session
[{"Id":"never",…}]
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
1

$ corralctl stop live
corralctl: cannot stop "live": corrald is not running
hint: systemctl --user start corrald
[exit 5]

$ corralctl run -- true
corralctl: cannot run "true": corrald is not running
hint: systemctl --user start corrald
[exit 5]

$ corralctl version
corralctl …
corrald is not running

# Without a bus, as in a shell of su, doctor shows how to get one.
$ DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent corralctl stop live
corralctl: cannot stop "live": cannot connect to the session bus: dial unix /nonexistent: connect: no such file or directory
hint: corralctl doctor
[exit 5]
$ DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent corralctl agents
corralctl: cannot list agents: cannot connect to the session bus: dial unix /nonexistent: connect: no such file or directory
hint: corralctl doctor
[exit 5]
