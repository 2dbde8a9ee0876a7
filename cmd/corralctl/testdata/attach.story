# attach without an id joins the only session that waits, or the only one; otherwise it asks.

$ corralctl attach </dev/null
corralctl: cannot attach: standard input is not a terminal
hint: corralctl list
[exit 1]

$ corralctl run --attach -- sleep 1000; corralctl list --no-legend
corralctl: cannot attach: standard input is not a terminal
hint: corralctl help run


# A terminal that a script can read and type into.
$ cat >~/terminal.sh <<'EOF'
> t() { tmux -S ~/terminal "$@"; }
> see() { until t capture-pane -p | grep -q -- "$1"; do :; done; t capture-pane -p | sed 's/ *$//;/^$/d'; }
> new() { t -f /dev/null new-session -d -x 80 -y 12 "unset TMUX; $*; echo code \$?; exec sleep 1000"; }
> keys() { t send-keys "$@"; }
> end() { t kill-server; while t has-session; do :; done 2>/dev/null; }
> EOF

$ . ~/terminal.sh; new corralctl attach; see code; end
corralctl: cannot attach: no session runs
hint: corralctl list
code 4

$ mkdir -p ~/config/corral && printf '[Corral]\nIdleAfterSec=1h\n' >~/config/corral/corral.conf && corralctl reload

$ for i in 1 2; do mkdir -p ~/src/docs; corralctl run -q --id fix-$i -- sh -c 'echo here; cat'; corralctl run -q --id api-$i --dir ~/src/docs -- sh -c 'echo here; cat'; done

$ . ~/terminal.sh; new corralctl attach; see fix-2
Attach to?
> api-1 command working …s ~/src/docs
  api-2 command working …s ~/src/docs
  fix-1 command working …s ~/src/shop
  fix-2 command working …s ~/src/shop

# Letters filter, arrows select, Enter attaches.
$ . ~/terminal.sh; keys no-such; see 'no session'
Attach to? no-such
  no session matches

$ . ~/terminal.sh; keys C-u; keys Down; keys fix; keys Down; see '> fix-2'
Attach to? fix
  fix-1 command working …s ~/src/shop
> fix-2 command working …s ~/src/shop

$ . ~/terminal.sh; keys Enter; see here >~/out; keys hello Enter; see hello | head -2; end
here
hello

$ corralctl peek fix-2 | head -2
here
hello

# Escape leaves the list and restores the terminal.
$ . ~/terminal.sh; new corralctl attach; see fix-2 >~/out; keys Escape; see code; end
code 0

# The same on a terminal that is narrower than an id.
$ corralctl run -q --id an-id-that-is-longer-than-the-terminal-is-wide -- sleep 1000
$ . ~/terminal.sh; t -f /dev/null new-session -d -x 30 -y 12 'unset TMUX; corralctl attach; exec sleep 1000'; see fix-2 >~/out; keys Down; see '> api-1' >~/out; keys fix; see 'Attach to? fix'; end
Attach to? fix
> fix-1 comma… working …
  fix-2 comma… working …

# Another client may resume it before the question is answered: attach then joins it.
$ corralctl run -q --id twice -- sh -c 'echo here again; exec sleep 1000' && corralctl suspend twice
$ . ~/terminal.sh; new corralctl attach twice; see Choice >~/out; corralctl resume twice; see '^.twice. ' | head -1; end
here again

# A session cannot be attached to in its own terminal: each line of it would print another one,
# without end.
$ corralctl run -q --id own -- sh -c 'while read -r line; do sh -c "$line"; echo "code $?"; done'
$ n=0; for verb in attach "logs -f"; do corralctl send own "corralctl $verb own"; n=$((n + 1)); until corralctl logs own | grep -c "^code" | grep -q "$n"; do :; done; done; corralctl logs own | grep -v "^corralctl [a-z]"
corralctl: cannot attach to "own": this is a terminal of that session itself
code 1
corralctl: cannot follow the log of "own": this is a terminal of that session itself
code 1

# A script answers in advance, and needs no terminal to tear a session down.
$ corralctl run -q --id script -- sleep 1000
$ corralctl attach --tear-down script </dev/null
corralctl: cannot attach: standard input is not a terminal
hint: corralctl peek script
[exit 1]
$ corralctl suspend script && corralctl attach --tear-down script </dev/null
Session script has no processes left.
$ corralctl rm script

# A session that was never started cannot be resumed or torn down: attach does not ask.
$ corralctl run -q --no-start --id new -- true; corralctl attach --tear-down new
corralctl: cannot attach to "new": it was never started
hint: corralctl start new
[exit 1]
