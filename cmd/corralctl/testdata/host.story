# Another machine is reached over ssh: corralctl only needs its bridge to the user's bus.

$ mkdir ~/bin && printf '#!/bin/sh\necho "ssh $*" >>~/asked\ncase "$*" in *corralctl\ attach*) exit;; esac\nwhile [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"\n' >~/bin/ssh && chmod +x ~/bin/ssh

$ PATH=~/bin:$PATH corralctl -H anna@desk run --dir /tmp --id far -- sleep 1000
Started session far (app-corral-command-far.scope).

$ PATH=~/bin:$PATH corralctl -H anna@desk is-active far
running

$ PATH=~/bin:$PATH corralctl -H anna@desk run -- true
corralctl: invalid value for --dir: expected an absolute path on anna@desk
hint: corralctl help run
[exit 2]

$ PATH=~/bin:$PATH corralctl -H -oProxyCommand=x list
corralctl: invalid host "-oProxyCommand=x": expected HOST or USER@HOST
[exit 2]

# An empty host does not mean this machine.
$ HOSTX= && corralctl -H "$HOSTX" stop --all; corralctl --host= list
corralctl: invalid host "": expected HOST or USER@HOST
corralctl: invalid host "": expected HOST or USER@HOST
[exit 2]

$ mkdir ~/none && printf '#!/bin/sh\necho "ssh: no such host" >&2; exit 255\n' >~/none/ssh && chmod +x ~/none/ssh; PATH=~/none:$PATH corralctl -H anna@desk version
corralctl: cannot ask corrald for its version: anna@desk cannot be reached: ssh: no such host
hint: ssh anna@desk corralctl doctor
[exit 5]

# Verbs that need a terminal run corralctl on that machine, with the options that were given.
$ PATH=~/bin:$PATH script -qec 'corralctl -H anna@desk run --dir /tmp --id seen --attach -- true' /dev/null >/dev/null
$ PATH=~/bin:$PATH script -qec 'corralctl -H anna@desk attach --resume --plain seen' /dev/null >/dev/null
$ PATH=~/bin:$PATH corralctl -H anna@desk logs -n 0 --all --no-legend --timeout=90 seen
$ PATH=~/bin:$PATH corralctl -H anna@desk linger -j
{"Lingering":false}

$ sort -u ~/asked
ssh -- anna@desk corralctl linger --json=auto --
ssh -- anna@desk corralctl logs --all --no-legend --timeout=1m30s --lines=0 -- seen
ssh -t -- anna@desk corralctl attach -- seen
ssh -t -- anna@desk corralctl attach --plain --resume -- seen
ssh -xT -- anna@desk exec sh -c 'exec systemd-stdio-bridge --bus-path=unix:path=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/bus'
ssh -xT -oBatchMode=yes -oConnectTimeout=10 -- anna@desk exec sh -c 'exec systemd-stdio-bridge --bus-path=unix:path=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/bus'

# Completions are those of the named hosts; a host that cannot be reached has none.
$ for host in '-H anna@desk' --host=anna@desk -Hanna@desk -qHanna@desk; do PATH=~/bin:$PATH corralctl __complete $host attach '' 2>/dev/null; done; PATH=~/none:$PATH corralctl __complete attach -aH anna@desk '' 2>/dev/null
far…command, running
:4
far…command, running
:4
far…command, running
:4
far…command, running
:4
:4
