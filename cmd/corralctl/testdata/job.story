# run --wait behaves as the job of a scheduler: it prints what its agent prints, and a signal that
# ends it ends the session.
$ corralctl run --wait --follow --id job -- sh -c 'printf "one\ntwo"; exit 7'
one
two
[exit 7]

$ corralctl run --wait -f --id long -- sh -c 'seq 1 5000; printf "\033[31mred\033[0m\n"' | tail -n 2
5000
red

$ corralctl run --wait --id cancelled -- sleep 1000 & pid=$!; corralctl wait -q --until=running cancelled 2>/dev/null || until corralctl wait -q --until=running cancelled 2>/dev/null; do :; done; kill $pid; wait $pid; echo $?; corralctl is-active cancelled
Started session cancelled (app-corral-command-cancelled.scope).
143
stopped
[exit 3]

# The agent may save its work first, and what it prints then is printed, too.
$ corralctl run --wait --follow --id saves -- sh -c 'trap "echo saved; exit 0" TERM; echo ready; while :; do sleep 0.1; done' >~/out & pid=$!; until grep -qs ready ~/out; do :; done; kill $pid; wait $pid; echo $?; cat ~/out
143
ready
saved

# A background job of a script ignores SIGINT; python starts one that does not.
$ python3 -c 'import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.default_int_handler); p = subprocess.Popen(["corralctl", "run", "-q", "--wait", "--follow", "--id", "interrupted", "--", "sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE); p.stdout.readline(); p.send_signal(signal.SIGINT); print(p.wait())'; corralctl is-active interrupted
130
stopped
[exit 3]

# Who is killed, or loses the connection, leaves the session running.
$ for signal in 1 9; do corralctl run -q --wait --id left-$signal -- sleep 1000 & pid=$!; until corralctl wait -q --until=running left-$signal 2>/dev/null; do :; done; kill -$signal $pid; wait $pid; echo $?; corralctl is-active left-$signal; done 2>/dev/null
129
running
137
running

# The own control group has no limits here.
$ corralctl run -q --wait --same-limits --id unlimited -- true; echo $?
0

# A queued session is taken out of the queue.
$ mkdir -p ~/config/corral && printf '[Corral]\nMaxRunning=1\n' >~/config/corral/corral.conf && corralctl reload; corralctl run --wait --id later -- true >~/out 2>&1 & pid=$!; until grep -qs "is queued" ~/out; do :; done; kill $pid; wait $pid; echo $?; corralctl list --no-legend --columns=id,state later
143
later created

$ corralctl run --follow -- true
corralctl: --follow needs --wait, and excludes --json
hint: corralctl help run
[exit 2]

$ corralctl -H desk run --wait --follow --dir /tmp -- true
corralctl: --follow and --same-limits are for sessions on this machine
hint: corralctl help run
[exit 2]
