# Every error that corrald sends, as a person sees it: what was wrong, and what to do about it. The
# test checks that each was sent.

# NoSuchSession, and UnknownObject if a call names its path. corralctl first checks itself which
# sessions exist and which one was meant.
$ corralctl stop nobody
corralctl: cannot stop "nobody": no such session
[exit 4]

$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1 -m io.github.corrald.Corral1.Manager.StopSession nobody 0
Error: GDBus.Error:io.github.corrald.Corral1.Error.NoSuchSession: no such session: "nobody"
[exit 1]

$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1/session/nobody -m io.github.corrald.Corral1.Session.Stop 0
Error: GDBus.Error:org.freedesktop.DBus.Error.UnknownObject: no such object, and no such session: /io/github/corrald/Corral1/session/nobody
[exit 1]

# SessionExists
$ corralctl run -q --id shop -- sh -c 'echo ready; read a; exec sleep 1000' && corralctl run --id shop -- true
corralctl: cannot run "true": session "shop" already exists
hint: corralctl attach shop
[exit 1]

# NoSessionForPID and NoSessionForUnit: only programs use the methods that return them.
$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1 -m io.github.corrald.Corral1.Manager.GetSessionByPID 1
Error: GDBus.Error:io.github.corrald.Corral1.Error.NoSessionForPID: process 1 is in no session
[exit 1]

$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1 -m io.github.corrald.Corral1.Manager.GetSessionByUnit dbus.service
Error: GDBus.Error:io.github.corrald.Corral1.Error.NoSessionForUnit: no session has unit "dbus.service"
[exit 1]

# NoSuchAgent
$ corralctl run hal
corralctl: cannot run "hal": no such agent
hint: corralctl agents
[exit 1]

# AgentNotInstalled
$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=no-such-program\n' >~/config/corral/agents/missing.agent && corralctl reload && corralctl run missing
corralctl: cannot run "missing": agent "missing" is not installed: command "no-such-program" not found
hint: corralctl doctor
[exit 1]

# InvalidState
$ corralctl resume shop
corralctl: cannot resume "shop": it is running
hint: corralctl status shop
[exit 1]

$ corralctl rm shop
corralctl: cannot remove "shop": it is running
hint: corralctl rm --force shop
[exit 1]

$ corralctl archive shop
corralctl: cannot archive "shop": it is running
hint: corralctl status shop
[exit 1]

$ corralctl run -q --id new --no-start -- true && corralctl kill new
corralctl: cannot kill "new": it has no process to signal: it was never started
hint: corralctl status new
[exit 1]

$ corralctl kill -s TERM new
corralctl: cannot kill "new": it has no process to signal: it was never started
hint: corralctl status new
[exit 1]

$ corralctl logs new
corralctl: cannot show the log of "new": it has no log yet
hint: corralctl start new
[exit 1]

$ corralctl peek new
corralctl: cannot read the screen of session "new": it was never started
hint: corralctl start new
[exit 1]

$ corralctl send new hello
corralctl: cannot send to session "new": it was never started
hint: corralctl status new
[exit 1]

$ corralctl thaw new
corralctl: cannot thaw session "new": it was never started
hint: corralctl status new
[exit 1]

# NotResumable
$ corralctl resume new
corralctl: cannot resume "new": it has never run: there is nothing to resume
hint: corralctl start new
[exit 1]

# NotWaiting
$ corralctl send --if-waiting shop yes
corralctl: cannot send to "shop": it does not wait for input: its agent is …
hint: corralctl peek shop
[exit 1]

# WorkspaceMissing
$ corralctl run --dir /nonexistent -- true
corralctl: cannot run "true": workspace "/nonexistent" does not exist
[exit 1]

$ touch ~/file && corralctl run --dir ~/file -- true
corralctl: cannot run "true": workspace "~/file" is not a directory
[exit 1]

$ mkdir ~/src/away && corralctl run -q --id away --dir ~/src/away --no-start -- true && rmdir ~/src/away && corralctl start away
corralctl: cannot start "away": workspace "~/src/away" does not exist
hint: corralctl status away
[exit 1]

# WorkspaceBusy
$ mkdir ~/src/alone && corralctl run -q --exclusive --dir ~/src/alone --id alone -- sleep 1000 && corralctl run --exclusive --dir ~/src/alone -- true
corralctl: cannot run "true": workspace "~/src/alone" is in use by session "alone"
hint: corralctl list --all
[exit 1]

# StartFailed
$ corralctl run --id wrong -- /nonexistent
corralctl: cannot run "/nonexistent": command "/nonexistent" not found
[exit 1]

$ corralctl run --id wrong -- ../shop
corralctl: cannot run "../shop": command "../shop" is not executable
[exit 1]

$ corralctl run --no-start --id wrong -- /nonexistent
Created session wrong.

$ corralctl start wrong
corralctl: cannot start "wrong": command "/nonexistent" not found
hint: corralctl status wrong
[exit 1]

# TmuxFailed
$ for s in $XDG_RUNTIME_DIR/corral/shop/tmux*; do mv $s $s.away; done; corralctl peek shop; for s in $XDG_RUNTIME_DIR/corral/shop/tmux*; do mv $s ${s%.away}; done
corralctl: cannot read the screen of "shop": error connecting to …/corral/shop/tmux (No such file or directory)
hint: corralctl status shop

# ConfigError
$ printf '[Corral]\nMaxSessions=3\n' >~/config/corral/corral.conf && chmod 0 ~/config/corral/corral.conf && corralctl reload; chmod 600 ~/config/corral/corral.conf
corralctl: cannot read configuration: open ~/config/corral/corral.conf: permission denied

# TooManySessions
$ corralctl reload && corralctl run -- true
corralctl: cannot run "true": there are 5 sessions already, as many as MaxSessions= allows
hint: corralctl list --all
[exit 1]

# InvalidArgs
$ corralctl run --id 'no id' -- true
corralctl: cannot run "true": invalid Id "no id": expected a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, not ending in '.' or '-', and at most 64 bytes
[exit 1]

$ corralctl rm --worktree wrong
corralctl: cannot remove "wrong": it was not created with a worktree
hint: corralctl rm wrong
[exit 1]

# LimitsExceeded
$ corralctl describe shop "$(head -c 2000 /dev/zero | tr '\0' x)"
corralctl: cannot describe "shop": Description is longer than 1024 bytes
[exit 1]

# Internal
$ corralctl rm -q --force new away wrong alone; chmod 500 ~/state/corral/sessions; corralctl run --no-start -- true; chmod 700 ~/state/corral/sessions
corralctl: cannot create session "shop-2": mkdir ~/state/corral/sessions/shop-2: permission denied
hint: journalctl --user --unit=corrald

# UnknownInterface, UnknownMethod, UnknownProperty, PropertyReadOnly, InvalidArgs
$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1 -m org.freedesktop.DBus.Properties.Get org.example.Paint Colour
Error: GDBus.Error:org.freedesktop.DBus.Error.UnknownInterface: no such interface: org.example.Paint
[exit 1]

$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1 -m io.github.corrald.Corral1.Manager.Explode
Error: GDBus.Error:org.freedesktop.DBus.Error.UnknownMethod: /io/github/corrald/Corral1 has no such method: Explode
[exit 1]

$ corralctl show -P Colour shop
corralctl: cannot show "shop": no property "Colour"
hint: corralctl show shop
[exit 1]

$ corralctl show -P Stat shop
corralctl: cannot show "shop": no property "Stat"
hint: corralctl show --property=State shop
[exit 1]

$ gdbus call -e -d io.github.corrald.Corral1 -o /io/github/corrald/Corral1/session/shop -m org.freedesktop.DBus.Properties.Get io.github.corrald.Corral1.Session Colour
Error: GDBus.Error:org.freedesktop.DBus.Error.UnknownProperty: no such property: Colour
[exit 1]

$ busctl --user set-property io.github.corrald.Corral1 /io/github/corrald/Corral1/session/shop io.github.corrald.Corral1.Session State s stopped
Failed to set property State on interface io.github.corrald.Corral1.Session: property State cannot be set
[exit 1]

# Timeout
$ systemd=$(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s org.freedesktop.systemd1 | cut -d' ' -f2); kill -STOP $systemd; corralctl freeze shop; kill -CONT $systemd
corralctl: cannot freeze session "shop": systemd does not answer in time

# ShuttingDown
$ corralctl run -q --id stubborn -- sh -c 'trap "" TERM HUP; echo ready; while :; do sleep 1000; done'; until corralctl peek stubborn | grep -q ready; do :; done
$ corralctl stop --timeout=30s stubborn & until corralctl list --no-legend --state=stopping | grep -q stubborn; do :; done; kill $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2); wait
corralctl: cannot stop "stubborn": corrald is shutting down

# If the daemon does not find git, neither a worktree nor a session is created.
$ mkdir ~/few && ln -s $(command -v tmux) ~/few && git init -q . && (PATH=~/few $(dirname $(command -v corralctl))/corrald >/dev/null 2>&1 &) && until corralctl reload 2>/dev/null; do :; done; corralctl run --id lone --worktree -- true; corralctl list --no-legend lone; kill $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2)
corralctl: cannot create a worktree of workspace "~/src/shop": git is not installed, or not in corrald's PATH
hint: corralctl doctor
