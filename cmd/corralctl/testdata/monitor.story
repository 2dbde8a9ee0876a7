# monitor prints what happens to sessions; it survives a restart or the death of the daemon, and
# loses nothing.

$ corralctl run -q --id old --description 'before <it>' -- sleep 1000
$ for f in plain json waybar i3bar polybar; do corralctl monitor --format=$f </dev/null >~/$f 2>&1 & echo $! >>~/pids; done
$ until grep -q session ~/plain && grep -q old ~/json && grep -q . ~/waybar && grep -q '^\[.' ~/i3bar && grep -q . ~/polybar; do :; done

# The format for people prints the changes. The others start with what exists.
$ corralctl run -q --id shop --wait -- sh -c 'exit 3'
[exit 3]
$ until grep -q failed ~/plain && grep -q failed ~/polybar; do :; done; head -2 ~/plain; tail -1 ~/plain
Monitoring 1 session.
…:…:… shop starting (command in ~/src/shop)
…:…:… shop … -> failed (command exited with code 3)

$ head -1 ~/json
{"Time":…,"Event":"session","Id":"old","Properties":{…"Description":"before <it>",…"State":"running",…}}

# Without the daemon, the formats report that and wait for it. What happened meanwhile follows when
# it is back.
$ kill -KILL $(busctl --user call org.freedesktop.DBus / org.freedesktop.DBus GetConnectionUnixProcessID s io.github.corrald.Corral1 | cut -d' ' -f2)
$ until grep -q 'corrald is not running' ~/waybar && grep -q 'not running' ~/plain; do :; done
$ systemctl --user kill -s KILL --kill-whom=all app-corral-command-old.scope; while systemctl --user is-active -q app-corral-command-old.scope; do :; done
$ corrald </dev/null >/dev/null 2>&1 & echo $! >~/daemon
$ until grep -q 'old .*failed' ~/plain && grep -q '2 failed' ~/polybar && grep -q 'Before.*running.*old\|old.*Before.*running' ~/json; do :; done; grep -A2 corrald ~/plain
…:…:… corrald is not running; waiting for it
…:…:… corrald is back; what has changed since:
…:…:… old running -> failed (…)

$ cut -d, -f2- ~/json | grep -A1 daemon
"Event":"daemon-gone"}
"Event":"daemon-back"}
"Event":"changed","Id":"old","Properties":{…"State":"failed",…},"Before":{…"State":"running",…}}

# The bars get what their own protocols require, and no line that shows nothing new.
$ until grep -q '2 failed' ~/waybar && grep -q '2 failed' ~/i3bar; do :; done; head -1 ~/waybar; grep -B1 -A1000 corrald ~/waybar
{"text":"1 running","alt":"running","tooltip":"old: …","class":"running"}
{"text":"1 running, 1 failed","alt":"failed","tooltip":"old: …\nshop: failed, exit 3","class":"failed"}
{"text":"corrald is not running","alt":"offline","tooltip":"","class":"offline"}
...

$ tail -1 ~/waybar
{"text":"2 failed","alt":"failed","tooltip":"old: failed, …\nshop: failed, exit 3","class":"failed"}

$ head -3 ~/i3bar; tail -1 ~/i3bar
{"version":1}
[
[{"name":"corral","instance":"running","full_text":"1 running","color":"#50fa7b","urgent":false,"separator":true}]
,[{"name":"corral","instance":"failed","full_text":"2 failed","color":"#ff5555","urgent":false,"separator":true}]

$ uniq -d ~/polybar; grep corrald ~/polybar; tail -1 ~/polybar
%{F#888888}corrald is not running%{F-}
%{F#ff5555}2 failed%{F-}

# Sessions that have ended are reported, too.
$ mkdir ~/here; corralctl run -q --id moved --dir ~/here -- sleep 1000; mv ~/here ~/there; until grep -q 'running -> orphaned' ~/plain; do :; done; mv ~/there ~/here
$ until grep -q 'orphaned -> running' ~/plain; do :; done; corralctl rm --force -q moved; until grep -q 'moved removed' ~/plain; do :; done; grep orphaned ~/plain
…:…:… moved running -> orphaned (workspace "~/here" is gone)
…:…:… moved orphaned -> running

# monitor ends quietly when its reader does, even while nothing happens.
$ mkfifo ~/pipe; { corralctl monitor --format=waybar </dev/null >~/pipe 2>~/errors; echo "ended $?" >~/end; } & head -1 ~/pipe
{"text":"2 failed",…}
$ until [ -s ~/end ]; do :; done; cat ~/end ~/errors
ended 0

$ corralctl monitor --format=xmobar
corralctl: invalid value "xmobar" for --format: expected one of plain, json, waybar, i3bar, polybar
hint: corralctl help monitor
[exit 2]

$ kill $(cat ~/pids) $(cat ~/daemon); until busctl --user call org.freedesktop.DBus / org.freedesktop.DBus NameHasOwner s io.github.corrald.Corral1 | grep -q false; do :; done
