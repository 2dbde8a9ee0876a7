# Processes that an agent leaves behind are counted, listed, and killed by themselves or with the
# session; those that left the scope are reported.

$ cat >~/serve <<'EOF'
> setsid sh -c 'touch one; exec sleep 1001' &
> nohup sh -c 'touch two; exec sleep 1002' >/dev/null 2>&1 &
> setsid sh -c 'sleep 1003 & touch three'
> until [ -e one ] && [ -e two ] && [ -e three ]; do :; done
> EOF

$ corralctl run -q --id server -- sh ~/serve; corralctl wait server

$ until corralctl list --no-legend | grep '3 processes'; do :; done
server sh completed (3 processes left) - …s ~/src/shop

$ sleeps() { corralctl status -n 0 server | grep -o '─.*sleep 100.' | sed 's/.*─[0-9 ]*//' | sort; }; until sleeps | grep -c . | grep -q 3; do :; done; sleeps
sleep 1001
sleep 1002
sleep 1003

$ corralctl status -n 0 server | grep State
        State: completed (3 processes left) since …

$ corralctl kill --kill-whom=leftovers --all; until corralctl list --no-legend | grep -q 'completed  *-'; do :; done

# While the agent lives, leftovers are all processes that it has started; killing them leaves the
# agent running.
$ corralctl run -q --id busy -- sh -c 'sleep 1004 & setsid sleep 1005 & echo started; while :; do sleep 1006; echo again; done' && until corralctl status -n 0 busy | grep -q 'sleep 1006'; do :; done

$ corralctl kill --kill-whom=leftovers busy; until corralctl logs busy | grep -q again; do :; done; corralctl show -P State busy; corralctl status -n 0 busy | grep -c '─ *[0-9]* sleep 100[45]'
running
0
[exit 1]

$ corralctl stop busy && pgrep -c -f 'sleep 100[456]'
0
[exit 1]

# A process that moves out of its scope does not end with it. Corral finds it on request, by its
# parents and its environment.
$ corralctl run -q --id away -- sh -c 'setsid systemd-run --user --quiet --scope --unit=wander sleep 1007 & setsid systemd-run --user --quiet --scope --unit=clean env -i sleep 1008 & wait' && until corralctl status -n 0 away | grep -A2 Outside | grep -c sleep | grep -q 2; do :; done; corralctl status -n 0 away | grep -A2 Outside
      Outside: 2 processes have left its scope and do not end with it
               … sleep (….scope)
               … sleep (….scope)

$ corralctl why away --plain | grep outside
outside  process … -     sleep is in ….scope, not in its scope
outside  process … -     sleep is in ….scope, not in its scope

$ corralctl doctor | grep -A1 'for wander'
note  strays         process … (sleep) of session away has left its scope for wander.scope: it does not end with the session
                     -> systemctl --user stop wander.scope

$ corralctl status -n 0 away --json=short | tr '{' '\n' | grep -c '"Name":"sleep","ControlGroup":".*\.scope"'
2

$ corralctl stop away
corralctl: process … (sleep) of "away" is still running: it left its scope for wander.scope
hint: systemctl --user stop wander.scope

# It is found even if its parents have ended, as long as the session is known; a process without the
# session's environment is then not found.
$ busctl --user --json=short call io.github.corrald.Corral1 /io/github/corrald/Corral1 io.github.corrald.Corral1.Manager ListStrays
{"type":"a(suss)","data":[[["away",…,"/…/wander.scope","sleep"]]]}

$ systemctl --user stop wander.scope clean.scope && corralctl doctor | grep strays
ok    strays         every process of a session is in its scope

$ corralctl run -q --id again -- sh -c 'setsid systemd-run --user --quiet --scope --unit=wander sleep 1009 & wait' && until corralctl why again | grep -q sleep; do :; done; corralctl rm --force again; systemctl --user stop wander.scope
corralctl: process … (sleep) of "again" is still running: it left its scope for wander.scope
hint: systemctl --user stop wander.scope

# A process that tmux runs briefly, to record that it opens or closes a terminal, is not counted as
# the agent's.
$ cp "$(command -v sleep)" ~/utempter && corralctl run -q --id over -- sh -c "setsid $HOME/utempter 1010 & until pgrep -x utempter; do :; done; exit 0" && corralctl wait over; corralctl list --no-legend over; corralctl status -n 0 over | grep 'State'; corralctl stop over
over sh completed - …s ~/src/shop
        State: completed since …
