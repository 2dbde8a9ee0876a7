# Every verb distinguishes a program that completes from one that fails.

$ corralctl run --id good --wait -- true
Started session good (app-corral-command-good.scope).

$ corralctl run --id bad --wait -- sh -c 'exit 3'
Started session bad (app-corral-command-bad.scope).
[exit 3]

$ corralctl list
ID   AGENT STATE     ACTIVITY SINCE WORKSPACE
bad  sh    failed    exit 3   …s    ~/src/shop
good true  completed -        …s    ~/src/shop

2 sessions, 1 failed. Lingering is off.

$ corralctl show -p State,Result,ExecMainCode,ExecMainStatus,Reason bad
State=failed
Result=exit-code
ExecMainCode=1
ExecMainStatus=3
Reason=command exited with code 3

$ corralctl status bad --lines=0
● bad
        State: failed (Result: exit-code) since …; …s ago
       Reason: command exited with code 3
        Agent: command
      Command: sh -c 'exit 3'
    Workspace: ~/src/shop
         Unit: app-corral-command-bad.scope
         Runs: 1, the last one for …s
...
[exit 3]

$ corralctl is-failed bad good
failed
completed

$ corralctl is-failed --all; corralctl is-active --all; corralctl is-waiting -aq
failed
completed
failed
completed
[exit 3]

$ corralctl is-active bad
failed
[exit 3]

$ corralctl rm 'b*' good
$ corralctl list --no-legend

# Killed by a signal: the exit code is 128 plus the signal's number.
$ corralctl run --id loop -- sleep 1000
Started session loop (app-corral-command-loop.scope).

$ corralctl kill -s KILL loop && corralctl wait loop
[exit 137]

$ corralctl show -P Result,Reason loop
signal
command was killed by SIGKILL

# Looking at a failed session on a terminal acknowledges it; a script that reads its status does
# not.
$ corralctl status loop >~/status; corralctl show -P Attention loop; script -qec 'corralctl status loop' /dev/null >~/status; echo "seen: $(corralctl show -P Attention loop)"
failed
seen: 

$ corralctl run -q --id again -- sh -c 'exit 4'; corralctl wait -q again; unseen=$(corralctl show -P ExpireTimestamp again); script -qec 'corralctl status again' /dev/null >~/status; seen=$(corralctl show -P ExpireTimestamp again); echo "$(((unseen - seen) / 86400000000)) days less"; grep -c "Expires: $(LC_ALL=C date -d @$((seen / 1000000)) '+%a %Y-%m-%d %H:%M')" ~/status
5 days less
1
