# Earlier runs and their results are kept and shown; clean removes what has expired.

$ corralctl run --id shop -- sh -c 'exit 3'
Started session shop (app-corral-command-shop.scope).

$ corralctl wait --until=failed shop; corralctl start shop; corralctl wait --until=failed shop

$ corralctl show -P NRuns shop
2

$ corralctl status -n 0 shop
● shop
        State: failed (Result: exit-code) since …
       Reason: command exited with code 3
...
         Runs: 2, the last one for 0s, in total 0s
               … for 0s: exit-code (command exited with code 3)
               … for 0s: exit-code (command exited with code 3)
...
[exit 3]

$ corralctl show -P Runs shop | tr "'" '\n' | grep -c ':exit-code:1:3:command exited with code 3$'
2

$ corralctl clean --dry-run; corralctl clean

$ corralctl archive shop && corralctl list --no-legend; corralctl list --no-legend -a
shop sh archived … …s ~/src/shop
