# Several machines at once. Here all of them are this one; "down" does not answer, and "closed"
# refuses the connection.

$ mkdir ~/bin && printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; host=$2; shift 2\ncase $host in closed) echo "ssh: connection refused" >&2; exit 255;; down) exec sleep 60;; esac\nexec sh -c "$*"\n' >~/bin/ssh && chmod +x ~/bin/ssh

$ corralctl run -q --id shop -- sh -c 'echo hello; exec cat'; corralctl run -q --id site -- cat; until corralctl logs shop | grep -q hello; do sleep 0.1; done

$ export PATH=~/bin:$PATH; corralctl -H a,b list --columns=id,state
ID     STATE
a:shop running
a:site running
b:shop running
b:site running

4 sessions. …

# Names and groups.
$ mkdir -p ~/config/corral && printf '[Corral]\nHosts=gpu old=closed @lab=gpu,old\n' >~/config/corral/corral.conf; export PATH=~/bin:$PATH; corralctl -H @lab list --no-legend --columns=id; corralctl -H @all list --no-legend --columns=id; corralctl -H @shed list
gpu:shop
gpu:site
corralctl: old cannot be reached: ssh: connection refused
gpu:shop
gpu:site
shop
site
corralctl: old cannot be reached: ssh: connection refused
corralctl: unknown group "@shed": Hosts= in corral.conf does not have it
[exit 2]

# An id names its host, and needs no option then.
$ export PATH=~/bin:$PATH; corralctl is-active gpu:shop; corralctl send gpu:shop again && until corralctl peek gpu:shop | grep again; do sleep 0.1; done; corralctl logs gpu:shop | head -n 1
running
again
again
hello

# An id without a host must be on one host only, and is exact before it is a beginning.
$ export PATH=~/bin:$PATH; corralctl -H a,b stop shop; corralctl -H a,b stop a:s; corralctl -H .host,a is-active shop; corralctl -H .host,a is-active sho
corralctl: cannot stop "shop": ambiguous id: matches a:shop, b:shop
corralctl: cannot stop "a:s": ambiguous id: matches a:shop, a:site
running
corralctl: cannot ask for "sho": ambiguous id: matches a:shop, shop
[exit 1]

# While a host cannot be asked, an id without a host is refused: it may be there.
$ export PATH=~/bin:$PATH; corralctl -H a,closed stop shop; corralctl -H a,closed is-active a:shop; corralctl -H a,closed is-waiting --all
corralctl: cannot stop "shop": the session may be on closed, which cannot be reached
hint: corralctl stop a:shop
corralctl: closed cannot be reached: ssh: connection refused
running
corralctl: closed cannot be reached: ssh: connection refused
…
…
corralctl: closed cannot be reached: ssh: connection refused
[exit 5]

# A host that does not answer is a line, and does not delay the others for longer than two seconds.
$ export PATH=~/bin:$PATH; timeout 10 corralctl -H down,a list --no-legend --columns=id
a:shop
a:site
corralctl: down cannot be reached: no answer within 2s

$ export PATH=~/bin:$PATH; corralctl -H closed,old list; corralctl -H closed list
corralctl: closed cannot be reached: ssh: connection refused
corralctl: old cannot be reached: ssh: connection refused
corralctl: cannot list sessions: closed cannot be reached: ssh: connection refused
hint: ssh closed corralctl doctor
[exit 5]

# Each session is handled on its own host.
$ export PATH=~/bin:$PATH; corralctl freeze a:shop b:site && corralctl show -P Id,Frozen shop site && corralctl thaw gpu:shop site
shop
yes

site
yes

$ export PATH=~/bin:$PATH; corralctl logs a:shop site; corralctl logs -g hell a:shop b:site; corralctl status | head -n 2; corralctl -H a,b status | grep -e ' on ' -e State:; corralctl -H a,closed status -j
==> a:shop <==
hello
again
again

==> site <==
a:shop … hello
● corrald
        State: running
● corrald on a
        State: running
● corrald on b
        State: running
corralctl: --json shows corrald on one host
hint: corralctl help status
[exit 2]

$ export PATH=~/bin:$PATH; corralctl -H a,b version; corralctl -H a, list; corralctl -H 'a,b*' list; corralctl -M '' list; corralctl -M -x list; corralctl logs -f a:shop b:site
corralctl: version takes one host, not 2
hint: corralctl help version
corralctl: invalid host "": expected HOST or USER@HOST
corralctl: invalid host "b*": expected HOST or USER@HOST
corralctl: invalid machine "": expected MACHINE or USER@, without --host
corralctl: invalid machine "-x": expected MACHINE or USER@, without --host
corralctl: --follow, --journal and --json show sessions of one host
hint: corralctl help logs
[exit 2]

$ export PATH=~/bin:$PATH; corralctl -H a,b show; corralctl stop nowhere.example:xxxxxx c:; corralctl run -q --fork gpu:shop
corralctl: cannot show: this needs one host
corralctl: cannot stop "nowhere.example:xxxxxx": no such session
corralctl: cannot stop "c:": no such session
corralctl: cannot fork session "shop": …
[exit 1]

# Completions: the names of hosts, and what is on them.
$ export PATH=~/bin:$PATH; for word in '' g gpu:sh; do corralctl __complete attach "$word" 2>/dev/null; done; corralctl __complete -H b,a stop '' 2>/dev/null; corralctl __complete -H gpu, 2>/dev/null
gpu:…a host
old:…a host
shop…
site…
:6
gpu:…
:6
gpu:shop…
:4
a:shop…
a:site…
b:shop…
b:site…
:4
gpu,.host…this machine
gpu,@all…this machine and all of Hosts=
gpu,@lab…gpu, old
gpu,old…closed
:4

# Following several hosts.
$ export PATH=~/bin:$PATH; mkfifo events; corralctl -q -H a,closed monitor --format=polybar >events & exec 3<events; read -r line <&3; echo "$line"; corralctl stop site; until read -r line <&3; echo "$line" | grep -q '1 running'; do :; done; kill $!
%{F#50fa7b}2 running%{F-}

$ export PATH=~/bin:$PATH; timeout 5 corralctl wait a:site b:site; echo $?; timeout 5 corralctl wait --until=running a:shop b:shop
3
