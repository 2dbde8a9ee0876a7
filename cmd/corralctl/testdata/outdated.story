# restart --outdated restarts a session whose program was replaced, once nobody is attached to it and
# its agent is idle.

$ mkdir -p ~/config/corral && printf '[Corral]\nIdleAfterSec=100ms\n' >~/config/corral/corral.conf && corralctl reload

# An installer of several versions: a new file, then a link to it, which is renamed over the old one.
$ cat >~/install.sh <<'EOF'
> mkdir -p ~/bin ~/versions
> printf '#!/bin/sh\necho version %s; exec cat\n' $1 >~/versions/$1
> chmod +x ~/versions/$1
> ln -s ../versions/$1 ~/bin/.new
> mv -T ~/bin/.new ~/bin/tool
> EOF
$ cat >~/terminal.sh <<'EOF'
> t() { tmux -S ~/terminal "$@"; }
> see() { until t capture-pane -p | grep -q -- "$1"; do :; done; }
> new() { t -f /dev/null new-session -d -x 80 -y 12 "unset TMUX; $*; exec sleep 1000"; }
> end() { t kill-server; while t has-session; do :; done 2>/dev/null; }
> EOF

$ sh ~/install.sh 1; corralctl run -q --id shop -- ~/bin/tool && corralctl wait --until=idle shop
$ corralctl restart --outdated shop; corralctl show -P NRuns shop; corralctl peek shop
1
version 1

$ sh ~/install.sh 2; rm ~/versions/1; corralctl restart --outdated shop; corralctl show -P NRuns shop; corralctl peek shop
2
version 2

# While a terminal is attached, it waits. A restart by somebody else does as well.
$ . ~/terminal.sh; new corralctl attach shop; see 'version 2'; sh ~/install.sh 3; timeout 1 corralctl restart --outdated shop; echo $?; corralctl show -P Attached,NRuns shop
124
yes
2

$ . ~/terminal.sh; corralctl restart --outdated shop & end; wait; corralctl show -P Attached,NRuns shop; corralctl peek shop
no
3
version 3

# A session that does not run is left alone.
$ corralctl stop shop; sh ~/install.sh 4; corralctl restart --outdated shop; corralctl show -P State shop
stopped

$ corralctl restart --outdated none
corralctl: cannot restart "none": no such session
[exit 4]

$ corralctl restart --outdated --host none shop
corralctl: restart: --outdated cannot be used with --host: it examines files of this machine
hint: corralctl help restart
[exit 2]

$ corralctl restart --outdated --no-block shop
corralctl: restart: --outdated waits, and cannot be used with --no-block
hint: corralctl help restart
[exit 2]
