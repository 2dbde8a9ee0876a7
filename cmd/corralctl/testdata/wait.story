# On a terminal, wait shows what it waits for and how it ended; a script reads the exit code.

$ cat >~/tty.sh <<'END'
> tty() { TERM=xterm script -qec "$*" /dev/null </dev/null | tr '\r' '\n' | sed -e 's/\x1b\[K//g' -e '/^$/d'; }
> END

$ . ~/tty.sh; tty "corralctl run --wait --id build -- sh -c 'exit 9'; echo \$?"
Started session build. Attach: corralctl attach build
Session build: failed (exit-code, exit 9) after …; CPU …s, memory peak …
9

$ . ~/tty.sh; tty corralctl run --wait -q --id quiet -- true; tty "corralctl wait quiet build; echo \$?"
Session quiet: completed (success, exit 0) after …; CPU …s, memory peak …
Session build: failed (exit-code, exit 9) after …; CPU …s, memory peak …
9

$ corralctl run -q --id long -- sleep 1000; corralctl kill -s KILL long; . ~/tty.sh; tty "corralctl wait long; echo \$?"; corralctl wait long
Session long: failed (signal, SIGKILL) after …
137
[exit 137]

$ corralctl start long; . ~/tty.sh; tty "corralctl wait --until=failed,stopped --timeout=2500ms long; echo \$?"
Waiting until failed or stopped: 1 session (…s): long
...
124

$ . ~/tty.sh; tty "corralctl stop long; corralctl wait long; echo \$?"
Session long: stopped (success, SIGTERM) after …
3

# A log whose last line is incomplete does not swallow the line after it.
$ corralctl run -q --wait --id prompt -- printf 'a> '; . ~/tty.sh; tty "corralctl --no-pager logs prompt; echo next"; corralctl logs prompt; echo next
a> 
next
a> next
