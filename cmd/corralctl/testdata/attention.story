# An agent asks something; why shows where Corral knows that from.

$ corralctl run -q --id shop -- sh -c 'corralctl report waiting --reason=permission --message="may I?"; stty -echo; read answer; echo "$answer" >answer; corralctl report working; exec sleep 1000' && corralctl wait --until=waiting shop

$ corralctl list --no-legend
shop sh running waiting: permission: may I? …s ~/src/shop

$ corralctl status -n 0 shop | grep Attention
    Attention: permission: may I? (report), …s ago

$ corralctl why shop
● shop - running (waiting: permission), reported by report …s ago
SUBJECT   SOURCE  SINCE WHAT
state     systemd -     the scope is active
          tmux    -     its server is alive
          user    …created
          user    …start asked
          shim    …agent started (PID …)
activity  report  …waiting
          osc7501 -     nothing
          notify  -     nothing
          title   -     nothing
          bell    -     nothing
          output  … (overruled by report)
attention report  …permission: may I?

$ corralctl why --json=short shop | tr '{' '\n' | grep permission
"Subject":"attention","Source":"report","Time":…,"Value":"permission: may I?"}]

# Acknowledging a question does not answer it: it keeps its text and its age, but there are no more
# notifications of it.
$ raised=$(corralctl show -P AttentionTimestamp shop); corralctl ack shop && corralctl list --no-legend && corralctl is-waiting shop && [ "$(corralctl show -P AttentionTimestamp shop)" = "$raised" ]
shop sh running waiting: permission: may I? …s ~/src/shop
waiting

$ corralctl show -p Attention,AttentionMessage,AttentionAcknowledged shop; corralctl show -P Attention; corralctl show -P NWaiting
Attention=permission
AttentionMessage=may I?
AttentionAcknowledged=yes

1

$ corralctl status -n 0 shop | grep Attention; corralctl why shop | sed -n '1p;$p'
    Attention: permission: may I? (report), …s ago, seen
● shop - running (waiting: permission), reported by report …s ago
attention report  …permission: may I? (acknowledged)

$ corralctl send --if-waiting shop yes && corralctl send --if-waiting shop 'yes again'
corralctl: cannot send to "shop": it does not wait for input: its agent is …
hint: corralctl peek shop
[exit 1]

$ until grep -qs yes answer; do :; done; cat answer
yes

# Reading the status on a terminal acknowledges it, too; a script's reading does not. A question
# that is asked again is a new one.
$ corralctl run -q --id asks -- sh -c 'corralctl report waiting --message="one?"; read go; corralctl report waiting --message="two?"; exec sleep 1000' && corralctl wait --until=waiting asks; corralctl status asks >~/status; corralctl show -P AttentionAcknowledged asks; script -qec 'corralctl status asks' /dev/null >~/status; corralctl show -P AttentionAcknowledged,AttentionMessage asks
no
yes
one?

$ corralctl send asks go; until corralctl show -P AttentionMessage asks | grep two; do :; done; corralctl show -P AttentionAcknowledged asks; corralctl rm --force asks
two?
no

# Once answered, the question is gone.
$ corralctl wait --until=working shop && corralctl show -p Attention,AttentionMessage,AttentionTimestamp,AttentionAcknowledged shop
Attention=
AttentionMessage=
AttentionTimestamp=0
AttentionAcknowledged=no

$ corralctl why; corralctl why shoe
corralctl: why: missing ID
hint: corralctl help why
corralctl: cannot explain "shoe": no such session
hint: corralctl why shop
[exit 4]

# After a finished turn the user is next: it is named and counted separately, and stays until the
# agent works again.
$ corralctl run -q --id ended -- sh -c 'corralctl report idle --reason=turn-ended --message="finished task"; until [ -e go ]; do sleep 0.1; done; corralctl report working; exec sleep 1000' && corralctl wait --until=turn-ended ended

$ corralctl list ended; corralctl show -P NTurnEnded; corralctl show -P Attention
ID    AGENT STATE   ACTIVITY                  SINCE WORKSPACE
ended sh    running turn ended: finished task …s    ~/src/shop

1 session, 1 turn ended. Lingering is …
1
ended:turn-ended:…

$ corralctl is-waiting ended
turn-ended
[exit 3]

$ corralctl is-waiting --turn-ended ended && corralctl list --state=turn-ended --no-legend | cut -d ' ' -f 1
turn-ended
ended

$ corralctl ack ended && corralctl list --no-legend ended && corralctl show -P AttentionAcknowledged ended && corralctl show -P Attention
ended sh running turn ended: finished task …s ~/src/shop
yes


$ touch go; corralctl wait --until=working ended && corralctl list --no-legend ended && corralctl is-waiting --turn-ended ended; corralctl show -P NTurnEnded
ended sh running working …s ~/src/shop
working
0

# A failed session needs attention until somebody acknowledges it.
$ corralctl run -q --id bad -- sh -c 'exit 3' ; corralctl wait -q bad; corralctl show -P Attention bad; corralctl ack bad; corralctl show -P Attention bad
failed

$ corralctl why bad | tail -3
         shim        …agent started (PID …)
         exit_status …exited with code 3
activity -           -     unknown

# The list shows in one or two words why it failed.
$ corralctl run -q --id shot -- sh -c 'kill -KILL $$'; corralctl run -q --id gone -- /bin/false --no; corralctl wait -q shot gone; corralctl list --no-legend bad gone shot
bad  sh    failed exit 3  …s ~/src/shop
gone false failed exit 1  …s ~/src/shop
shot sh    failed SIGKILL …s ~/src/shop
