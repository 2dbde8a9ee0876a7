# shellcheck shell=sh
# What the scripts below share; scripts/dist.sh puts it before each of them.

# each_manager VERB…: has the systemd of every user that has one running do it. What fails for one user is reported, and stops nothing else.
# With enabled=yes only those in which corrald.service is enabled.
each_manager() {
  [ -d /run/systemd/system ] || return 0
  systemctl --quiet --no-legend --plain list-units --state=active 'user@*.service' | sed -n 's/^user@\([0-9]*\)\.service .*/\1/p' |
    while read -r uid; do
      [ "${enabled-}" != yes ] || timeout 60 systemctl --user --machine="$uid@" --quiet is-enabled corrald.service </dev/null || continue
      timeout 60 systemctl --user --machine="$uid@" --quiet "$@" </dev/null ||
        echo "corral: cannot do this for user $uid, who can run: systemctl --user $*" >&2
    done
}
