#!/bin/bash
# user-service.sh data | start BINDIR | stop | forget: the steps of `make install-user` and `make
# uninstall-user` that affect the running system.
set -u

print() { printf '%s\n' "$*"; }
manager_is_there() { systemctl --user show-environment >/dev/null 2>&1; }

# read_again makes systemd and the bus read the changed files. A bus does not watch a directory that
# did not exist when it started.
read_again() {
  systemctl --user daemon-reload &&
    busctl --user call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig >/dev/null
}

# data: prints the directory in which the user manager searches the user's own files, nothing if no
# manager is running.
if [ "${1-}" = data ]; then
  environment=$(systemctl --user show-environment 2>/dev/null) || exit 0
  unset XDG_DATA_HOME
  eval "$(grep '^XDG_DATA_HOME=' <<<"$environment")" # the output is quoted for shells
  print "${XDG_DATA_HOME:-$HOME/.local/share}"
  exit 0
fi

if ! manager_is_there; then
  print 'No systemd user manager answers: files are installed or removed, services are left alone. In a login session run:' \
    'systemctl --user daemon-reload && systemctl --user enable --now corrald.service'
  exit 0
fi

case ${1-} in
  start)
    read_again && systemctl --user --quiet enable corrald.service || exit 1
    # restart, not start: after an upgrade the new program adopts the running agents.
    systemctl --user restart corrald.service || {
      systemctl --user --no-pager status corrald.service
      exit 1
    }
    systemctl --user --quiet try-restart 'corral-remote@*.service'
    print "Installed into ${2%/bin}, enabled and started: systemctl --user status corrald"
    case :$PATH: in
      *:"$2":*) ;;
      *) print "$2 is not in your PATH yet: most shells put it there at the next login." ;;
    esac
    [ "$(loginctl show-user "$(id -un)" -P Linger 2>/dev/null)" != no ] ||
      print 'Agents end when you log out. To keep them running: loginctl enable-linger'
    ;;
  stop)
    systemctl --user --quiet disable --now corrald.service
    systemctl --user --quiet stop 'corral-remote@*.service'
    print 'Stopped. Running agents continue; their records are in ~/.local/state/corral.'
    ;;
  forget)
    read_again
    ;;
  *)
    echo 'usage: user-service.sh data | start BINDIR | stop | forget' >&2
    exit 2
    ;;
esac
