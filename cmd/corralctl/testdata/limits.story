# Limits that are set while a session runs, and stay with it; a session that is frozen, and thawed.

$ corralctl run --id shop -p TasksMax=100 -- sh -c 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done'
Started session shop (app-corral-command-shop.scope).

$ corralctl set-property shop TasksMax=77 CPUWeight=30 && systemctl --user show -P TasksMax -P CPUWeight app-corral-command-shop.scope | sort -n
30
77

# All limits are set or none, and the error names the wrong one.
$ corralctl set-property shop TasksMax=66 CPUWeight=20000
corralctl: unit property CPUWeight: invalid value "20000": expected a weight from 1 to 10000
hint: corralctl help set-property
[exit 2]

$ corralctl set-property shop TasksMax=66 RuntimeMaxSec=1h; systemctl --user show -P TasksMax app-corral-command-shop.scope
corralctl: cannot set a property of "shop": unit property RuntimeMaxUSec cannot be changed while the session runs
77

$ corralctl freeze shop && corralctl list --no-legend && corralctl show -P State,Frozen shop
shop sh running (frozen) … …s ~/src/shop
running
yes

$ corralctl send shop hello
corralctl: cannot send to session "shop": it is frozen; thaw it first
hint: corralctl thaw shop
[exit 1]

# A running session cannot be archived, whether it is frozen or not.
$ corralctl archive shop
corralctl: cannot archive "shop": it is running
hint: corralctl status shop
[exit 1]

$ corralctl freeze shop && corralctl thaw shop && corralctl thaw shop && corralctl show -P Frozen shop
no

# A frozen session is thawed so that it can end gracefully.
$ corralctl freeze shop && corralctl stop shop && corralctl show -P State,ExecMainStatus,Frozen shop
stopped
0
no

$ corralctl freeze shop
corralctl: cannot freeze session "shop": it was stopped
hint: corralctl status shop
[exit 1]

# A session that does not run keeps the limits for its next run, if systemd would accept them.
$ corralctl set-property shop TasksMax=44 RuntimeMaxSec=1h && corralctl start shop && systemctl --user show -P TasksMax -P RuntimeMaxUSec app-corral-command-shop.scope | sort
1h
44
