# --no-block waits until the operation has begun, and reports a refusal as usual.

$ corralctl run --no-block --id slow -- sleep 1000
Starting session slow (app-corral-command-slow.scope).

$ corralctl wait --until=running slow && corralctl run --no-block --json=short --no-start --id later -- true | grep -o '"Id":"later"'
"Id":"later"

$ corralctl run --no-block --id slow -- true
corralctl: cannot run "true": session "slow" already exists
hint: corralctl attach slow
[exit 1]

$ corralctl run --no-block nosuchagent
corralctl: cannot run "nosuchagent": no such agent
hint: corralctl agents
[exit 1]

$ corralctl run --no-block --dir /nonexistent -- true; corralctl list --no-legend
corralctl: cannot run "true": workspace "/nonexistent" does not exist
later true  created -       …s ~/src/shop
slow  sleep running … …s ~/src/shop

$ corralctl start --no-block slow
corralctl: cannot start "slow": it is running
hint: corralctl status slow
[exit 1]

$ corralctl archive --no-block slow; corralctl rm --no-block slow; corralctl resume --no-block slow later
corralctl: cannot archive "slow": it is running
hint: corralctl status slow
corralctl: cannot remove "slow": it is running
hint: corralctl rm --force slow
corralctl: cannot resume "slow": it is running
hint: corralctl status slow
corralctl: cannot resume "later": it has never run: there is nothing to resume
hint: corralctl start later
[exit 1]

$ corralctl stop --no-block slow && corralctl wait --until=stopped slow

# Nothing is left of a session that may not start.
$ corralctl run -q --exclusive --dir . --id holder -- sleep 1000; corralctl run --no-block --exclusive --dir . --id second -- sleep 1000; corralctl show second
corralctl: cannot run "sleep": workspace "~/src/shop" is in use by session "holder"
hint: corralctl list --all
corralctl: cannot show "second": no such session
[exit 4]
