# What happens to a session at the next login.

$ corralctl run -q --id shop -- sleep 1000

$ corralctl enable shop && corralctl show shop -P OnLogin
Session shop will be resumed at login.
resume

$ corralctl enable --start shop && corralctl show shop -P OnLogin
Session shop will be started at login.
start

$ corralctl disable shop && corralctl show shop -P OnLogin
Session shop will not be started at login.
ignore

$ corralctl disable nobody
corralctl: cannot disable "nobody": no such session
[exit 4]
