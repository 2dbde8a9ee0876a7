# A session whose agent has ended: attach shows its last screen and the result, and asks what to do.

$ cat >~/terminal.sh <<'EOF'
> t() { tmux -S ~/terminal-$(cat ~/number) "$@"; }
> see() { until t capture-pane -p | grep -q -- "$1"; do :; done; t capture-pane -p | sed 's/ *$//;/^$/d'; }
> new() { date +%N >~/number; t -f /dev/null new-session -d -x 90 -y 40 "unset TMUX; $*; echo code \$?; exec sleep 1000"; }
> keys() { t send-keys "$@"; }
> end() { t kill-server; }
> until_state() { until [ "$(corralctl show -P State $1)" = $2 ]; do :; done; }
> tmux_pid() { tmux -S $XDG_RUNTIME_DIR/corral/$1/tmux display-message -p '#{pid}'; }
> EOF

$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=sh -c "echo first run; read line; exit 3"\nResumeCommand=sh -c "echo second run; read line; exit 5"\n' >~/config/corral/agents/fake.agent && corralctl reload

# No line of its output is missing, and only what is possible is offered.
$ corralctl run -q --id one --wait -- sh -c 'echo hello; exit 4'
[exit 4]
$ . ~/terminal.sh; new corralctl attach one; see Choice
hello
one: sh exited with code 4, ….
  s  restart    start sh from the beginning
  l  log        show everything that it has printed
  a  archive    hide it and keep its record and log; it cannot be started again
  q  leave      change nothing
Enter: leave, because sh would start from the beginning.
Choice:

# Any other key changes nothing, nor does an archive that is not confirmed.
$ . ~/terminal.sh; keys x; see 'is not a choice'; keys a; see 'y/N' >~/out; keys n; see ' no$' | tail -2; corralctl show -P State one
hello
...
"x" is not a choice: press s, l, a, q or Enter.
Choice:
Archive one? It cannot be started again. [y/N] no
Choice:
failed

$ . ~/terminal.sh; keys l; see '^hello$' >~/out; see 'Choice: log' | grep -A1 log; until [ $(t capture-pane -p | grep -c '^hello') = 2 ]; do :; done; keys Enter; see ^code | tail -2; end
...
Choice: leave
code 0

$ . ~/terminal.sh; for key in q c C Escape C-c C-d C-q; do new corralctl attach one; see Choice: >~/out; keys $key; see ^code | tail -2; end; done
Choice: leave
code 0
Choice: leave
code 0
Choice: leave
code 0
Choice: leave
code 0
Choice: leave
code 0
Choice: leave
code 0
Choice: leave
code 0

# Pasted text does not answer.
$ . ~/terminal.sh; new corralctl attach one; see Choice: >~/out; t set-buffer restart; t paste-buffer; see Pasted | grep Pasted; keys q; see ^code | tail -2; end; corralctl show -P State one
Pasted text is ignored: press s, l, a, q or Enter.
Choice: leave
code 0
failed

$ . ~/terminal.sh; new corralctl attach one; see Choice: >~/out; keys a; see 'y/N' >~/out; keys y; see ^code | tail -3; end; new corralctl attach one; see Choice; keys q; see ^code >~/out; end
Archive one? It cannot be started again. [y/N] yes
Archived session one.
code 0
hello
one: sh exited with code 4, ….
  l  log        show everything that it has printed
  q  leave      change nothing
Enter: leave, because an archived session cannot be started again.
Choice:

# The same if the agent ends while somebody is attached. What they were typing does not answer.
$ corralctl run -q --id shop fake
$ . ~/terminal.sh; new corralctl attach shop; see 'first run' >~/out; keys Enter a a a; see Choice
first run
...
shop: sh exited with code 3, ….
  r  resume     continue the conversation in a new run
  s  restart    start sh with a new conversation
  l  log        show everything that it has printed
  a  archive    hide it and keep its record and log; it cannot be started again
  q  leave      change nothing
Enter: resume, because the agent can continue its conversation.
Choice:
$ . ~/terminal.sh; keys R Enter; see 'second run' | head -1; corralctl show -P State shop; keys Enter; see 'shop: sh exited with code 5' | grep shop: | tail -1; see Choice:$ >~/out; keys s; see '^.shop. ' >~/out; corralctl show -P NRuns shop
second run
running
shop: sh exited with code 5, ….
3

# The agent keeps running after a person detaches.
$ . ~/terminal.sh; keys C-b d; see 'code 0' | tail -2; end; corralctl is-active shop
detached from shop; it keeps running
code 0
running

# tmux hangs and has missed the end of the pane: attach does not query it.
$ . ~/terminal.sh; kill -STOP $(tmux_pid shop); corralctl kill shop; until_state shop failed; new corralctl attach shop; see Choice | grep shop:; keys q; see ^code >~/out; end
shop: sh was killed by SIGTERM, ….

# If the tmux server dies while a person is attached, attach shows the agent again.
$ . ~/terminal.sh; corralctl start shop; new corralctl attach shop; see '^.shop. ' >~/out; kill -KILL $(tmux_pid shop); see Choice
...
shop: its tmux server died; sh (PID …) is still running.
  r  resume     show the running agent in a new tmux server
  s  restart    end the agent and start sh from the beginning
  l  log        show everything that it has printed
  t  tear-down  end the agent and all other processes of the session
  q  leave      change nothing
Enter: resume, because the agent is still running, and nothing was lost.
Choice:
$ . ~/terminal.sh; pid=$(corralctl show -P MainPID shop); keys Enter; see '^.shop. ' >~/out; [ $(corralctl show -P MainPID shop) = $pid ] && corralctl show -P State shop; kill -KILL $(tmux_pid shop); see Choice:$ >~/out; keys t; see ^code | tail -3; end; corralctl show -P State shop
running
Choice: tear-down
Session shop has no processes left.
code 0
stopped
$ . ~/terminal.sh; new corralctl attach shop; see Choice | grep shop:; corralctl resume shop; see '^.shop. ' >~/out; corralctl suspend shop; see 'suspended on request' | grep suspended; end
shop: sh was stopped on request, ….
shop: sh was suspended on request, ….

# A session may be restarted or removed while a person is attached.
$ . ~/terminal.sh; corralctl resume shop; new corralctl attach shop; see '^.shop. ' >~/out; before=$(tmux_pid shop); corralctl restart shop; until tmux -S $XDG_RUNTIME_DIR/corral/shop/tmux list-clients -F 'attached again' 2>/dev/null | grep .; do :; done
attached again
$ . ~/terminal.sh; corralctl rm --force shop; see ^code | tail -2; end
corralctl: session "shop" was removed
code 4

# Leftover processes of its agent are counted, and can be stopped by themselves.
$ corralctl run -q --id left --wait -- sh -c 'for i in 1 2; do setsid sh -c "touch $i; exec sleep 1000" & done; until [ -e 1 ] && [ -e 2 ]; do :; done'
$ . ~/terminal.sh; new corralctl attach left; see Choice; keys T; see ^code | tail -2; end
left: sh exited with code 0, …; 2 of its processes are still running.
  s  restart    start sh from the beginning; ends the 2 processes that it left behind
  l  log        show everything that it has printed
  a  archive    hide it and keep its record and log; it cannot be started again; ends the…
  t  tear-down  end the 2 processes that it left behind
  q  leave      change nothing
Enter: leave, because sh would start from the beginning.
Choice:
Session left has no processes left.
code 0

# A session that was never started, and one that is frozen.
$ corralctl run -q --no-start --id new -- sh -c 'echo it runs; exec sleep 1000'
$ . ~/terminal.sh; new corralctl attach new; see Choice; keys Enter; see '^it runs' | head -1
new: sh has never been started.
  s  start      start sh, and attach
  q  leave      change nothing
Enter: start, because it has never been started.
Choice:
it runs
$ . ~/terminal.sh; corralctl freeze new; see 'Choice:$'; keys Enter; see '^.new. ' | head -1; keys C-b d; see 'detached from' | tail -2; end
...
new: sh is frozen.
  t  thaw       let its processes continue, and attach
  l  log        show everything that it has printed
  q  leave      change nothing
Enter: thaw, because a frozen agent does not answer.
Choice:
it runs
detached from new; it keeps running
code 0

# Answers in advance.
$ corralctl run -q --id flags fake; corralctl stop flags
$ . ~/terminal.sh; new corralctl attach --resume flags; see 'second run' | head -1; end; corralctl stop flags; new corralctl attach --restart flags; see 'first run' | head -1; end; corralctl suspend flags; new corralctl attach --tear-down flags; see ^code; end
second run
first run
Session flags has no processes left.
code 0
$ . ~/terminal.sh; new 'corralctl freeze new; corralctl attach --restart new; corralctl thaw new'; see ^code; end
corralctl: cannot attach to "new": it is frozen
hint: corralctl thaw new
code 0

# tmux may refuse the terminal.
$ . ~/terminal.sh; new TERM=nonesuch corralctl attach new; see ^code; end
missing or unsuitable terminal: nonesuch
corralctl: cannot attach to "new": tmux exited with code 1
code 1
