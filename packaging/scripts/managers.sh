# shellcheck shell=sh
# The common part of the package scripts; scripts/dist.sh inserts it at the beginning of each of
# them.

# each_manager VERB…: runs systemctl --user with these arguments for every user with a running
# manager. A failure is reported and does not affect the other users. With enabled=yes, only for
# users who have enabled corrald.service.
each_manager() {
  [ -d /run/systemd/system ] || return 0
  systemctl --quiet --no-legend --plain list-units --state=active 'user@*.service' | sed -n 's/^user@\([0-9]*\)\.service .*/\1/p' |
    while read -r uid; do
      [ "${enabled-}" != yes ] || timeout 60 systemctl --user --machine="$uid@" --quiet is-enabled corrald.service </dev/null || continue
      timeout 60 systemctl --user --machine="$uid@" --quiet "$@" </dev/null ||
        echo "corral: cannot do this for user $uid, who can run: systemctl --user $*" >&2
    done
}
