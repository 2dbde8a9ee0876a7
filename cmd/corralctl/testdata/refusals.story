# What corralctl itself refuses, verb by verb: what was wrong, and what to do about it.

$ for i in 1 2; do corralctl run -q --id fix-$i -- sleep 1000; done; corralctl run -q --id new --no-start -- true

$ corralctl attach one two
corralctl: attach: expected one ID, not 2
hint: corralctl help attach
[exit 2]

$ corralctl attach --resume --tear-down fix-1
corralctl: only one of --resume, --restart and --tear-down can be given
hint: corralctl help attach
[exit 2]

$ corralctl as-unit
corralctl: as-unit: expected one ID
hint: corralctl help as-unit
[exit 2]

$ corralctl logs -n -1 fix-1
corralctl: invalid value "-1" for --lines: expected a number of lines
hint: corralctl help logs
[exit 2]

$ EDITOR= VISUAL= corralctl edit --full claude </dev/null
corralctl: cannot edit "claude": standard input is not a terminal, and VISUAL and EDITOR are not set
[exit 1]

$ corralctl cat
corralctl: cat: missing AGENT
hint: corralctl help cat
[exit 2]

$ corralctl edit
corralctl: edit: expected one AGENT
hint: corralctl help edit
[exit 2]

$ EDITOR= VISUAL= PATH=$(dirname $(command -v corralctl)) corralctl edit --full claude
corralctl: cannot edit "claude": no editor was found: VISUAL and EDITOR are not set
[exit 1]

$ corralctl kill --kill-whom=everybody fix-1
corralctl: invalid value "everybody" for --kill-whom: expected agent, all or leftovers
hint: corralctl help kill
[exit 2]

$ corralctl kill -s NONSENSE fix-1
corralctl: invalid signal "NONSENSE": expected a name or a number
hint: corralctl help kill
[exit 2]

$ corralctl logs --json fix-1
corralctl: the output of an agent is text: --json needs --journal or --grep
hint: corralctl help logs
[exit 2]

$ corralctl logs -f fix-1 fix-2
corralctl: -f follows one session, not 2
hint: corralctl help logs
[exit 2]

$ corralctl logs -f 'fix-*'
corralctl: -f follows one session, and "fix-*" names 2
hint: corralctl help logs
[exit 2]

$ corralctl logs --journal new
corralctl: cannot show the journal of "new": it was never started
hint: corralctl start new
[exit 1]

$ corralctl describe; corralctl describe fix-1
corralctl: describe: missing ID and TEXT
hint: corralctl help describe
corralctl: describe: missing TEXT
hint: corralctl help describe
[exit 2]

$ corralctl describe fix-1 two words
corralctl: describe: expected one TEXT, not 2 words: quote the text
hint: corralctl help describe
[exit 2]

$ corralctl describe fix-1 "$(printf '\377')"
corralctl: the description is not valid UTF-8
hint: corralctl help describe
[exit 2]

$ corralctl label
corralctl: label: missing ID
hint: corralctl help label
[exit 2]

$ corralctl label fix-1 urgent
corralctl: invalid label "urgent": expected KEY=VALUE or KEY-
hint: corralctl help label
[exit 2]

$ corralctl set-property fix-1
corralctl: set-property: expected ID and NAME=VALUE
hint: corralctl help set-property
[exit 2]

$ corralctl send fix-1 two words
corralctl: send: expected one TEXT, not 2 words: quote the text
hint: corralctl help send
[exit 2]

$ corralctl send fix-1 "$(printf '\377')"
corralctl: cannot send to "fix-1": the text is not valid UTF-8
hint: corralctl help send
[exit 2]

$ head -c 20000000 /dev/zero | tr '\0' x | corralctl send fix-1 -
corralctl: cannot send to "fix-1": the text is longer than 16.0M
[exit 1]

$ corralctl status 'fix-['
corralctl: cannot show the status of "fix-[": invalid pattern "fix-["
[exit 2]

$ corralctl why 'fix-*' | grep -o 'fix-[12]'; corralctl why -j fix-1 fix-2
fix-1
fix-2
corralctl: why --json: expected one session, not 2
hint: corralctl help why
[exit 2]

$ corralctl label 'fix-*' a=b && corralctl label fix-2 | grep a= && corralctl label 'fix-*' a-; corralctl label 'fix-*'
a=b
corralctl: cannot label "fix-*": expected one session, and it matches 2
hint: corralctl help label
[exit 2]

$ corralctl monitor fix-1
corralctl: monitor takes no arguments: it shows every session
hint: corralctl help monitor
[exit 2]

$ corralctl monitor --format=xml
corralctl: invalid value "xml" for --format: expected one of plain, json, waybar, i3bar, polybar
hint: corralctl help monitor
[exit 2]

$ corralctl list --json=nice
corralctl: invalid value "nice" for --json: expected short, pretty or off
hint: corralctl help list
[exit 2]

$ corralctl top fix
corralctl: top takes no arguments: press / in it to filter sessions
hint: corralctl help top
[exit 2]

$ corralctl top --sort=colour
corralctl: invalid value "colour" for --sort: expected one of attention, cpu, memory, change, agent, id
hint: corralctl help top
[exit 2]

$ corralctl top
corralctl: cannot show a full screen: standard input is not a terminal
hint: corralctl monitor
[exit 1]

$ TERM=dumb script -qec 'corralctl top' /dev/null | tr -d '\r'
corralctl: cannot show a full screen: the terminal does not support it (TERM=dumb)
hint: corralctl monitor

$ corralctl linger on off
corralctl: linger: expected on or off, not 2 words
hint: corralctl help linger
[exit 2]

$ DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent corralctl linger off
corralctl: cannot turn lingering off: cannot connect to the bus: dial unix /nonexistent: connect: no such file or directory
hint: sudo loginctl disable-linger …
[exit 1]

# Operations that take longer than --timeout: systemd is stopped for this.
$ systemd=$(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s org.freedesktop.systemd1 | cut -d' ' -f2); kill -STOP $systemd; corralctl start --timeout=300ms new; kill -CONT $systemd
corralctl: cannot start "new": it took longer than 300ms

# wait reports why there is nothing left to wait for.
$ corralctl run -q --no-start --id wrong -- /nonexistent; corralctl start wrong 2>/dev/null; corralctl wait wrong
corralctl: "wrong" has failed: command "/nonexistent" not found
[exit 1]

$ corralctl stop fix-1; corralctl wait --until=failed fix-1
corralctl: "fix-1" is stopped and did not become failed
[exit 1]

# A verb that waits for what a daemon reports waits for the daemon, too, from the moment at which the
# session has started: a full pipe stops corralctl there until the daemon is killed.
$ mkfifo ~/p; exec 3<>~/p; head -c 65536 /dev/zero >&3; corralctl run --wait --id cut -- sleep 1000 >&3 2>~/err & waits=$!; until corralctl wait -q --until=running cut 2>/dev/null; do :; done; corralctl show cut >/dev/null; kill -KILL $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2); head -c 65536 <&3 >/dev/null; until grep -q hint ~/err; do :; done; kill -HUP $waits; head -n 1 <&3; cat ~/err
Started session cut (app-corral-command-cut.scope).
corralctl: corrald is not running; waiting for it
hint: systemctl --user status corrald
