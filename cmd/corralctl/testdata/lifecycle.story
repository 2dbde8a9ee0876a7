# Stop, start, restart and remove, with the state after each.

$ corralctl run --id one --description 'The first' -- sleep 1000
Started session one (app-corral-command-one.scope).

$ corralctl run --no-start -- sleep 1000
Created session shop.

$ corralctl list --no-legend --state=created
shop sleep created - …s ~/src/shop

$ corralctl is-active one; corralctl is-active -q shop
running
[exit 3]

$ corralctl stop one && corralctl show -P State,Result one
stopped
success

$ corralctl wait one
[exit 3]

$ corralctl start one shop && corralctl list --no-legend
one  sleep running … …s ~/src/shop
shop sleep running … …s ~/src/shop

$ corralctl restart one && corralctl show -P NRuns,State one
3
running

$ corralctl rm one
corralctl: cannot remove "one": …
hint: corralctl rm --force one
[exit 1]

$ corralctl rm --force --all && corralctl list
0 sessions. Lingering is off.
