# Each check shows what it found, and a remedy where something is missing. No daemon is needed.

$ corralctl doctor | grep -E '^[a-z]+ +(user bus|systemd|cgroup v2|tmux|git|state|inotify|terminal)'
ok    user bus       answers
ok    systemd        version …, with a user manager
… cgroup v2      …
ok    tmux           version …
ok    git            …/git
ok    state          ~/state/corral, … free
ok    inotify        …
ok    terminal       none, without a graphical session

$ corralctl doctor | grep ' corrald '
ok    corrald        version … is running
note  corrald        running, but its unit is not installed: nothing will start it again

# The shell's directories may differ from the daemon's.
$ XDG_CONFIG_HOME=$HOME/mine corralctl doctor | grep -A1 ' corrald .* below'
note  corrald        its configuration is below ~/config, but corralctl looks below ~/mine
                     -> systemctl --user import-environment XDG_CONFIG_HOME && systemctl --user restart corrald; permanently: environment.d(5)
$ env -u XDG_STATE_HOME corralctl doctor | grep -A1 ' corrald .* below'
note  corrald        its records are below ~/state, but corralctl looks below ~/.local/state
                     -> export XDG_STATE_HOME=~/state
$ corralctl doctor | grep ' below'
[exit 1]

# Only a fault makes it fail: mistakes in the configuration are notes, with file and line.
$ mkdir -p ~/config/corral && printf '[Corral]\nStopTimeoutSec=never\n' >~/config/corral/corral.conf && corralctl doctor | grep configuration
note  configuration  ~/config/corral/corral.conf:2: StopTimeoutSec=: …, ignored

# Hooks are listed, and files that are not valid hooks are reported.
$ corralctl doctor | grep ' hooks '
ok    hooks          none

$ mkdir ~/config/corral/hooks.d && cp /bin/true ~/config/corral/hooks.d/ntfy && touch ~/config/corral/hooks.d/masked && echo >~/config/corral/hooks.d/text && corralctl doctor | grep ' hooks '
note  hooks          ~/config/corral/hooks.d/text: a hook must be executable (chmod +x), ignored
ok    hooks          ntfy

# The daemon reports a hook that fails, until it works.
$ printf '#!/bin/sh\nexit 4\n' >~/config/corral/hooks.d/ntfy; corralctl run -q --id fails -- sh -c 'exit 3'; until corralctl status | grep -q hook; do sleep 0.1; done
$ corralctl doctor | grep 'hook "ntfy"'
note  corrald        the hook "ntfy" failed: corral-hook-ntfy-….service exited with code 4; see: journalctl --user -u corral-hook-ntfy-….service
$ printf '#!/bin/sh\n' >~/config/corral/hooks.d/ntfy; corralctl reload; until ! corralctl doctor | grep -q 'hook "ntfy"'; do sleep 0.1; done
$ corralctl rm fails

$ corralctl doctor --json=short | tr '{' '\n' | grep '"state"'
"Check":"state","Level":"ok","Text":"~/state/corral, … free","Remedy":""},

$ chmod 500 ~/state/corral ~/state; XDG_STATE_HOME=$HOME/state/other corralctl doctor -q; echo $?; chmod 700 ~/state ~/state/corral
fault state          ~/state is not writable: permission denied
                     -> change its owner or mode (chown, chmod)
1

# It looks for the shim where the daemon does.
$ CORRAL_SHIM=/nonexistent corralctl doctor -q
fault corral-shim    corral-shim is not installed: looked for ["/nonexistent"]
                     -> install the Corral package, or run make install-user in its sources
[exit 1]

# tmux is the one that the daemon would find, by the user manager's PATH.
$ mkdir ~/bin && printf '#!/bin/sh\necho tmux 2.9a\n' >~/bin/tmux && chmod +x ~/bin/tmux
$ systemctl --user set-environment PATH=$HOME/bin:/usr/bin:/bin && corralctl doctor -q; systemctl --user unset-environment PATH
fault tmux           version 2.9a; 3.3 or newer is required
                     -> install tmux 3.3 or newer

$ corralctl doctor please
corralctl: doctor takes no arguments
hint: corralctl help doctor
[exit 2]
