# Several sessions at once: prefixes and patterns name them, and an error about one does not stop
# the others.

$ for i in 1 2 3; do corralctl run -q --id fix-$i -- sleep 1000; done; corralctl run -q --id api -- sleep 1000

$ corralctl stop fix
corralctl: cannot stop "fix": ambiguous id: matches fix-1, fix-2, fix-3
[exit 1]

$ corralctl stop nothing ap
corralctl: cannot stop "nothing": no such session
[exit 4]

$ corralctl is-active a 'fix-*'
stopped
running
running
running

$ corralctl stop 'fix-[12]' --timeout=5s && corralctl list --no-legend --state=running
fix-3 sleep running … …s ~/src/shop

$ corralctl wait --timeout=100ms fix-3
[exit 124]

$ corralctl wait --timeout=100ms --json=short api fix-3
[{"Id":"api","State":"stopped",…,"ExitCode":3},{"Id":"fix-3","State":"running",…,"ExitCode":124}]
[exit 124]

$ corralctl wait --until=running,failed fix-3

$ corralctl stop --all && corralctl list | tail -1
4 sessions. Lingering is off.

$ corralctl list -j | tr ',' '\n' | grep -c '"State":"stopped"'
4

# Patterns and prefixes do not match an archived session, unless it is requested.
$ corralctl archive api && corralctl run -q --id app --no-start -- true && corralctl label ap && corralctl label ap here=yes && corralctl label app && corralctl label api
here=yes

$ corralctl label --all ap
corralctl: cannot label "ap": ambiguous id: matches api, app
[exit 1]
