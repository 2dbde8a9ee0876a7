# shellcheck shell=sh
# Argument: deb "remove", "purge" or "upgrade"; rpm the number of remaining versions; Arch
# VERSION-RELEASE.
case ${1-} in
  upgrade | failed-upgrade | abort-* | disappear | 1) exit 0 ;;
  purge) ! command -v deb-systemd-helper >/dev/null || deb-systemd-helper --user purge corrald.service >/dev/null || : ;;
esac
each_manager daemon-reload
