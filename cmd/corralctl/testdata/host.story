# Another machine is reached over ssh: all that is asked of it is its bridge to the user's bus.

$ mkdir ~/bin && printf '#!/bin/sh\necho "ssh $*" >>~/asked\nwhile [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"\n' >~/bin/ssh && chmod +x ~/bin/ssh

$ PATH=~/bin:$PATH corralctl -H anna@desk run --dir /tmp --id far -- sleep 1000
Started session far (app-corral-command-far.scope).

$ PATH=~/bin:$PATH corralctl -H anna@desk is-active far
running

$ PATH=~/bin:$PATH corralctl -H anna@desk run -- true
corralctl: --dir has to name a directory of anna@desk in full
hint: corralctl help run
[exit 2]

$ PATH=~/bin:$PATH corralctl -H -oProxyCommand=x list
corralctl: cannot connect: "-oProxyCommand=x" is no host
[exit 2]

$ cat ~/asked | sort -u
ssh -xT -- anna@desk systemd-stdio-bridge --bus-path=unix:path=$XDG_RUNTIME_DIR/bus
