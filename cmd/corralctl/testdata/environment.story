# why lists by name where the variables of a run come from; it shows only the value of PATH.

$ FROM_SHELL=canary corralctl run --id shop -E OWN=1 -- sleep 1000
Started session shop (app-corral-command-shop.scope).

$ corralctl why --environment shop | grep -E '^(VARIABLE|FROM_SHELL|OWN|CORRAL_SESSION|PATH|HOME|XDG_STATE_HOME)'
VARIABLE …SOURCE  VALUE
CORRAL_SESSION …corral
FROM_SHELL …caller
HOME …manager
OWN …session
PATH …caller  …/usr/local/bin:/usr/bin:/bin
XDG_STATE_HOME …caller

# Every run has what was set with -E; the environment is that of the caller who starts the run.
$ corralctl restart shop && corralctl why --environment shop | grep -E '^(FROM_SHELL|OWN)'
OWN …session
FROM_SHELL …caller  not set; an earlier run had it

$ FROM_SHELL=2 corralctl restart shop && corralctl why --environment --json=short shop | tr '{' '\n' | grep FROM_SHELL
"Name":"FROM_SHELL","Source":"caller"},

$ grep -c '"OWN=1"' ~/state/corral/sessions/shop/session.json; grep -c canary ~/state/corral/sessions/shop/session.json
1
0
[exit 1]

$ corralctl run --id created --no-start -- true && corralctl why --environment created
Created session created.
corralctl: cannot explain "created": it was never started
hint: corralctl status created
[exit 1]

# If a command is not found, the error names the PATH that was searched.
$ PATH=$PATH:/opt/mine corralctl run --id typo -- no-such-program
corralctl: cannot run "no-such-program": command "no-such-program" not found in PATH=…:/usr/local/bin:/usr/bin:/bin:/opt/mine
[exit 1]

# The id is free: there is no session. A session that was created without a start stays.
$ corralctl run -q --no-start --id typo -- no-such-program

$ corralctl start typo
corralctl: cannot start "typo": command "no-such-program" not found in PATH=…:/usr/local/bin:/usr/bin:/bin
hint: corralctl why --environment typo
[exit 1]

# The PATH is that of the refused run, also if an older session has the name of the command.
$ corralctl run -q --no-start --id no-such-program -- no-such-program; corralctl start -q no-such-program 2>/dev/null; PATH=$PATH:/opt/mine corralctl run -- no-such-program
corralctl: cannot run "no-such-program": command "no-such-program" not found in PATH=…:/usr/local/bin:/usr/bin:/bin:/opt/mine
[exit 1]

# Every id can be used: the names of Corral's own files are not valid ids.
$ mkdir ../login && cd ../login && corralctl run -- sleep 1000
Started session login (app-corral-command-login.scope).

# send --resume passes the environment of the caller on. A text for an agent that could not be started
# is kept, and typed once.
$ mkdir ~/opt && printf '#!/bin/sh\nstty -echo; echo reads; exec cat\n' >~/opt/reader && chmod +x ~/opt/reader && PATH=$PATH:~/opt corralctl run -q --id far -- reader && corralctl suspend far && corralctl send --resume far 'first text'
corralctl: cannot start "far": command "reader" not found in PATH=…/usr/local/bin:/usr/bin:/bin (the text is kept, and typed once the session is resumed)
hint: corralctl why --environment far
[exit 1]

$ corralctl why far | grep -o 'a text.*'; PATH=$PATH:~/opt corralctl send --resume far 'second text' && until corralctl peek far | grep -q '^second'; do :; done; corralctl peek far; corralctl why far | grep -c 'a text'
a text that could not be sent is typed once the session is resumed
reads
first text
second text
0
[exit 1]
