# A daemon that does not answer is distinguished from one that does not run; a request that timed
# out is not carried out when it answers again.

$ corralctl run -q --id live -- sleep 1000
$ corralctl run -q --id done --wait -- true
$ corralctl run -q --id never --no-start -- true

# A daemon that answers is waited for, however long the operation takes.
$ corralctl run -q --id deaf -- sh -c 'trap "" TERM HUP; touch deaf; while :; do sleep 1; done'; while ! test -e deaf; do :; done
$ corralctl stop -q --timeout=7s deaf && corralctl rm -q deaf

$ kill -STOP $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2 | tee ~/daemon)

$ corralctl list
ID    AGENT STATE                                   ACTIVITY SINCE WORKSPACE
done  true  completed                               -        …
live  sleep state unknown (corrald does not answer) -        …
never true  created                                 -        …

3 sessions.…
corralctl: corrald has not answered within 5s: this is what was saved
hint: systemctl --user restart corrald
[exit 5]

$ corralctl status live
○ live
        State: state unknown (corrald does not answer)
...
corralctl: corrald has not answered within 5s: this is what was saved
hint: systemctl --user restart corrald
[exit 5]

$ corralctl version
corralctl …
corrald does not answer

$ corralctl run --id late -- sleep 1000
corralctl: cannot run "sleep": corrald has not answered within 5s
hint: systemctl --user restart corrald
[exit 5]

$ corralctl run --no-block --id late -- sleep 1000
corralctl: cannot run "sleep": corrald has not answered within 5s
hint: systemctl --user restart corrald
[exit 5]

$ corralctl start --no-block never
corralctl: cannot start "never": corrald has not answered within 5s
hint: systemctl --user restart corrald
[exit 5]

$ kill -CONT $(cat ~/daemon); corralctl wait --timeout=100ms live
[exit 124]
$ corralctl list
ID    AGENT STATE…
done  true  completed…
live  sleep running…
never true  created…

3 sessions.…
