# Ports that are reserved for a session, with and without a worktree.

$ git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first

$ corralctl run -q --id web --ports=2 -- sh -c 'echo "port $CORRAL_PORT, not $PORT"; exec sleep 1000'
$ until corralctl logs web | grep port; do :; done
port 2…, not…
$ corralctl status -n 0 web | grep Ports; first=$(corralctl logs web | grep -o '2[0-9]*'); corralctl show -P Ports web | grep -c "^$first $((first + 1))$"; corralctl show --json=short web | grep -c "\"Ports\":\[$first,$((first + 1))\]"
        Ports: 2…-2…
1
1

# They are the same after a restart.
$ corralctl show -P Ports web >~/before; corralctl restart web; corralctl show -P Ports web | diff ~/before - && echo same
same

$ corralctl run --ports=101 -- true
corralctl: invalid value "101" for --ports: expected 0 to 100
hint: corralctl help run
[exit 2]

# What is configured for a repository applies to its worktrees; invalid lines are reported.
$ mkdir -p ~/config/corral/repositories && printf '[Match]\nPath=%%h/src/shop\n[Worktree]\nPorts=1\nPortVariable=PORT\nPorts=many\n' >~/config/corral/repositories/shop.repository && corralctl reload && corralctl doctor | grep repository
note  configuration  ~/config/corral/repositories/shop.repository:6: Ports=: invalid number of ports "many": expected 0 to 100, ignored

$ corralctl run -q --id tree --worktree -- sh -c 'test "$PORT" = "$CORRAL_PORT" && echo "ports $PORT"; exec sleep 1000'; until corralctl logs tree | grep ports; do :; done
ports 2…
$ corralctl status -n 0 tree | grep Ports
        Ports: 2…
$ corralctl run -q --id none --worktree --ports=0 -- sleep 1000; corralctl status -n 0 none | grep Ports
[exit 1]
$ corralctl list --json web none | grep -o '"Ports":[^]]*]'
"Ports":[]
"Ports":[2…,2…]

# The range is configured. A port in use is not reserved.
$ printf '[Corral]\nPortRange=29998-29999\n' >~/config/corral/corral.conf && corralctl reload && corralctl run --id big --ports=3 -- true
corralctl: cannot run "true": PortRange=29998-29999 has no 3 free ports in a row
[exit 1]
