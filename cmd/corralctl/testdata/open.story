# The user's manager opens the window where the user is now: on the manager's display, not on the
# caller's.

$ corralctl run -q --id shop -- sleep 1000

$ corralctl open shop
corralctl: cannot open "shop": the user manager has neither WAYLAND_DISPLAY nor DISPLAY
hint: corralctl attach shop
[exit 1]

$ DISPLAY=:7 corralctl open shop
corralctl: cannot open "shop": the user manager has neither WAYLAND_DISPLAY nor DISPLAY
hint: systemctl --user import-environment DISPLAY XAUTHORITY
[exit 1]

$ corralctl open fix-auth
corralctl: cannot open "fix-auth": no such session
[exit 4]

# Terminal= names the program that shows the window, with its own options; the command follows them
# unchanged.
$ printf '#!/bin/sh\nprintf "<%%s>" "$DISPLAY" "$@" >~/.said && mv ~/.said ~/said\n' >~/myterm && chmod +x ~/myterm
$ mkdir -p ~/config/corral && printf '[Corral]\nTerminal=%s --fresh "a  $HOME"\n' ~/myterm >~/config/corral/corral.conf
$ systemctl --user set-environment DISPLAY=:8 HOME="$HOME" && DISPLAY=:7 corralctl open shop && while ! cat ~/said 2>/dev/null; do :; done
<:8><--fresh><a  $HOME><…/corralctl><attach><shop>

# A program that cannot be executed is reported as such.
$ printf 'x' >~/broken && chmod +x ~/broken && printf '[Corral]\nTerminal=%s\n' ~/broken >~/config/corral/corral.conf && corralctl open shop
corralctl: cannot run "~/broken": its start job ended with "failed"
hint: journalctl --user -u corral-window-shop-….service
[exit 1]

# A window that fails as soon as it opens is reported, too.
$ printf '#!/bin/sh\nuntil systemctl --user is-active -q "corral-window-*"; do :; done; exit 7\n' >~/fails && chmod +x ~/fails
$ printf '[Corral]\nTerminal=%s\n' ~/fails >~/config/corral/corral.conf && corralctl open shop
corralctl: cannot open "shop": corral-window-shop-….service exited with code 7
hint: journalctl --user -u corral-window-shop-….service
[exit 1]

$ printf '[Corral]\nTerminal=nonesuch\n' >~/config/corral/corral.conf && corralctl open shop; systemctl --user unset-environment DISPLAY HOME
corralctl: cannot open "shop": Terminal=: "nonesuch" is not installed
