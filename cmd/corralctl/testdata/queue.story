# MaxRunning= limits how many sessions run at the same time. Those beyond it are queued.
$ mkdir -p ~/config/corral/agents && printf '[Corral]\nMaxRunning=0\n' >~/config/corral/corral.conf && corralctl reload && corralctl doctor | grep MaxRunning
note  configuration  ~/config/corral/corral.conf:2: MaxRunning=: invalid number "0": expected 1 or more, ignored

$ printf '[Corral]\nMaxRunning=1\n' >~/config/corral/corral.conf && corralctl reload && corralctl run --id one -- sleep 1000
Started session one (app-corral-command-one.scope).

$ corralctl run --id two -- sh -c 'exit 3'; corralctl run --id three -- sleep 1000; corralctl run -q --id four -- sleep 1000
Session two is queued, 1st.
Session three is queued, 2nd.

$ corralctl list
ID    AGENT STATE   ACTIVITY    SINCE WORKSPACE
four  sleep created queued, 3rd …s    ~/src/shop
one   sleep running working     …s    ~/src/shop
three sleep created queued, 2nd …s    ~/src/shop
two   sh    created queued, 1st …s    ~/src/shop

4 sessions, 3 queued. …

$ corralctl list --state=queued --no-legend --columns=id; corralctl status four | grep -E 'State|Queued'; corralctl status | grep Sessions; corralctl why four | head -1; corralctl why four | grep queued
four
three
two
        State: created (queued, 3rd) since …
       Queued: since …
     Sessions: 4, 1 running, 3 queued
○ four - created (queued, 3rd)
○ four - created (queued, 3rd)
         user   …s    queued to start

$ corralctl show -P QueuePosition three; corralctl list --json=short four | grep -o '"QueuePosition":.'; corralctl run --json=short --id five -- sleep 1000 | grep -o '"QueuePosition":.'
2
"QueuePosition":3
"QueuePosition":4

# What needs the terminal says that the session is queued, and what helps.
$ corralctl attach three </dev/null
corralctl: cannot attach: standard input is not a terminal
hint: corralctl status three
[exit 1]

$ corralctl send three hello
corralctl: cannot send to session "three": it is queued
hint: corralctl status three
[exit 1]

# run --wait and wait also wait for a queued session, which stop and rm take out of the queue.
$ corralctl run --id six --wait -- true >~/out 2>&1 & until grep -qs queued ~/out; do sleep 0.1; done; corralctl stop six; wait $!; echo $?; cat ~/out
3
Session six is queued, 5th.
corralctl: cannot wait for "six": it was taken out of the queue

$ rm -f ~/out; corralctl start six; corralctl rm five; corralctl run --id seven --wait -- true >~/out 2>&1 & until grep -qs queued ~/out; do :; done; corralctl rm seven; wait $!; echo $?; cat ~/out; corralctl stop six
six is queued, 5th.
4
Session seven is queued, 5th.
corralctl: cannot wait for "seven": it was removed

# The next one starts when one ends; --now does not wait. A restart keeps its place.
$ corralctl restart one && corralctl stop one && corralctl wait two
[exit 3]

$ corralctl wait --until=running three && corralctl start one && corralctl start --now four && corralctl list --no-legend --columns=id,state,activity
one is queued, 2nd.
four  running working
one   stopped queued, 1st
six   created -
three running working
two   failed  exit 3

# A suspended session is resumed once its turn has come, and is then given what was sent meanwhile.
$ echo 'printf go; cat' >~/go && printf '[Agent]\nCommand=sh %%h/go\nResumeCommand=sh %%h/go\nMaxRunning=1\nIdleAfterSec=100ms\n' >~/config/corral/agents/cat.agent && printf '[Corral]\n' >~/config/corral/corral.conf && corralctl reload && corralctl run -q --id cat cat && corralctl suspend cat && corralctl run -q --id tom cat && corralctl resume cat
cat is queued, 1st.

$ corralctl send --resume cat 'go on'; corralctl send --resume cat 'and on'
cat is queued, 1st. The text is typed once it runs.
corralctl: cannot send to session "cat": it is queued, and another text is typed once it runs
hint: corralctl send --resume cat …
[exit 1]

$ t() { tmux -S ~/terminal "$@"; }; t -f /dev/null new-session -d -x 80 -y 12 'unset TMUX; corralctl attach --resume cat; corralctl attach --restart cat; corralctl run --attach --id dog cat; corralctl run --id cow cat; echo code $?; exec sleep 1000'; until t capture-pane -p | grep -q code; do :; done; t capture-pane -p | sed '/^ *$/d'; t kill-server; corralctl rm cow dog
corralctl: cannot attach to "cat": it is queued, 1st
hint: corralctl resume --now cat
corralctl: cannot attach to "cat": it is queued, 1st
hint: corralctl resume --now cat
Session dog is queued, 2nd.
corralctl: cannot attach to "dog": it is queued, 2nd
hint: corralctl start --now dog
Session cow is queued, 3rd. Start it now: corralctl start --now cow
code 0

$ corralctl resume cat
cat is queued, 1st.

$ corralctl stop tom && corralctl wait --until=running cat && until corralctl peek cat 2>/dev/null | grep -q '^go.*go on'; do :; done; corralctl list --no-legend --columns=id,state cat
cat running

# Other limits, and the queue, survive a restart of corrald; without it, the queue is what was saved.
$ corralctl run -q --id last cat; kill -KILL $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2); while busctl --user call org.freedesktop.DBus / org.freedesktop.DBus NameHasOwner s io.github.corrald.Corral1 | grep -q true; do :; done; corralctl list --no-legend --columns=id,activity last
last queued, 1st
corralctl: corrald is not running: this is what was saved
hint: systemctl --user start corrald
[exit 5]

$ corralctl run --no-start --now -- true
corralctl: --no-start excludes --attach, --wait and --now
hint: corralctl help run
[exit 2]
