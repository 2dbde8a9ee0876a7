# An agent that reports a usage limit, with the time of the reset as a number or in its text.
$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=sh %%h/limited\nResumeCommand=sh %%h/limited again\nContinueText=go on, please\n' >~/config/corral/agents/limited.agent && corralctl reload
$ printf 'test "$1" || corralctl report idle --reason=limit --message="$TEXT" $UNTIL\nwhile read line; do echo "got: $line"; corralctl report working; done' >~/limited
$ in_an_hour=--until=@$(($(date +%s) + 3600)); corralctl run -q --id shop -E UNTIL=$in_an_hour -E TEXT='Out of tokens' limited && corralctl run -q --id text --label on-limit=continue -E TEXT='Usage limit, resets Jan 2, 5am (UTC)' limited && corralctl wait --until=idle shop text

$ corralctl list --no-legend --columns=id,activity
shop limit until …: Out of tokens
text limit until Jan 2 …: Usage limit, resets Jan 2, 5am (UTC)

$ corralctl list | tail -1; corralctl show -P NLimited; corralctl monitor --format=polybar & sleep 1; kill $!
2 sessions, 2 at a limit. …
2
…2 at a limit…

# What happens after the reset is decided by the session, its agent, or corral.conf.
$ corralctl show -P ContinueTimestamp shop; systemctl --user list-timers --all --no-legend 'corral-continue-*' | wc -l
0
1

$ corralctl label shop on-limit=sometimes
corralctl: label on-limit: invalid value "sometimes": expected notify or continue
hint: corralctl help label
[exit 2]

$ corralctl label shop on-limit=continue && corralctl status -n 0 shop | grep -E 'Attention|Continues'
    Attention: limit until …: Out of tokens (report), …s ago
    Continues: …

# The timer of systemd is for that time, and calls corralctl; before that time it does nothing.
$ at=$(corralctl show --json=short shop | grep -o '"ContinueTimestamp":[0-9]*' | grep -o '[0-9]*'); test "$(systemctl --user show -P NextElapseUSecRealtime corral-continue-shop.timer)" = "$(date -d @$((at / 1000000)) '+%a %Y-%m-%d %H:%M:%S %Z')"; echo $?
0

$ systemctl --user show -P ExecStart corral-continue-shop.service | grep -o 'argv\[\]=[^;]*'; corralctl continue --if-due shop; corralctl peek shop
argv[]=…/corralctl continue --if-due shop…

# A person may continue it at any time. This removes the timer.
$ corralctl continue shop && corralctl wait --until=working shop && corralctl peek shop && corralctl show -P ContinueTimestamp shop
go on, please
got: go on, please
0

$ corralctl continue shop
corralctl: cannot continue "shop": it does not wait for the reset of a usage limit
hint: corralctl peek shop
[exit 1]

# Nothing is typed any more once somebody has typed. Another limit is another one.
$ corralctl send text mine && corralctl wait --until=working text && corralctl show -P ContinueTimestamp text; systemctl --user list-timers --all --no-legend 'corral-continue-*' | wc -l
0
0

# A suspended session is resumed.
$ corralctl run -q --id night --label on-limit=continue -E PATH="$PATH" -E UNTIL=--until=@$(($(date +%s) + 3600)) limited && corralctl wait --until=idle night && corralctl suspend -q night && corralctl list --no-legend --columns=id,activity night
night by user, continues at …
$ corralctl continue night && corralctl wait --until=working night && corralctl peek night && corralctl list --no-legend --columns=id,state,activity night
go on, please
got: go on, please
night running working

$ corralctl run -q --id odd limited; corralctl wait --until=idle odd; corralctl report idle --until=soon
corralctl: invalid --until=soon: expected @ and seconds since 1970, with --reason=limit
hint: corralctl help report

$ corralctl list --no-legend --columns=id,activity odd
odd limit

# A hostile text is shown, and nothing else.
$ corralctl run -q --id hostile --label on-limit=continue -E TEXT='`touch ~/pwned`$(touch ~/pwned), resets Jan 2, 5am (../../etc/passwd)' limited && corralctl wait --until=idle hostile && corralctl list --no-legend --columns=id,activity hostile
hostile limit until Jan 2 05:01: `touch ~/pwned`$(touch ~/pwned), resets Jan 2, 5am…
$ corralctl continue hostile && corralctl wait --until=working hostile && test ! -e ~/pwned && corralctl peek hostile
go on, please
got: go on, please
