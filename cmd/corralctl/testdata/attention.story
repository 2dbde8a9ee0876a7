# An agent asks something; who wants to know why Corral says so is told.

$ corralctl run -q --id shop -- sh -c 'corralctl report waiting --reason=permission --message="may I?"; stty -echo; read answer; echo "$answer" >answer; corralctl report working; exec sleep 1000' && corralctl wait --until=waiting shop

$ corralctl list --no-legend
shop command running (waiting: permission) waiting: permission …s ~/src/shop

$ corralctl status -n 0 shop | grep Attention
    Attention: permission: may I? (report)

$ corralctl why shop
● shop - running (waiting: permission), said by report …s ago
SUBJECT   SOURCE  SINCE WHAT
state     systemd -     the scope is active
          tmux    -     its server is alive
          user    …created
          user    …start asked
          shim    …the agent was executed (PID …)
activity  report  …waiting
          osc7501 -     nothing
          notify  -     nothing
          title   -     nothing
          bell    -     nothing
          output  … (weaker than report)
attention report  …permission: may I?

$ corralctl why --json=short shop | tr '{' '\n' | grep permission
"Subject":"attention","Source":"report","Time":…,"Value":"permission: may I?"}]

# Taking note of it does not answer it.
$ corralctl ack shop && corralctl list --no-legend && corralctl is-waiting shop
shop command running (waiting) waiting …s ~/src/shop
waiting

$ corralctl send --if-waiting shop yes && corralctl send --if-waiting shop 'yes again'
corralctl: cannot send to "shop": it does not wait for input: its agent is …
hint: corralctl peek shop
[exit 1]

$ until grep -qs yes answer; do :; done; cat answer
yes

$ corralctl why; corralctl why shoe
corralctl: why needs the id of a session
hint: corralctl help why
corralctl: cannot explain "shoe": no such session
hint: corralctl why shop
[exit 4]

# What failed wants somebody to know of it, until somebody does.
$ corralctl run -q --id bad -- sh -c 'exit 3' ; corralctl wait -q bad; corralctl show -P Attention bad; corralctl ack bad; corralctl show -P Attention bad
failed

$ corralctl why bad | tail -3
         shim        …the agent was executed (PID …)
         exit_status …exited with code 3
activity -           -     unknown
