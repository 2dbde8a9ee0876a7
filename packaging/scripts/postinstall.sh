# shellcheck shell=sh
# Argument: deb "configure OLD-VERSION", rpm the count of versions installed now, Arch VERSION-RELEASE.
upgrade=no
case ${1-} in
  configure)
    [ -z "${2-}" ] || upgrade=yes
    deb-systemd-helper --user unmask corrald.service >/dev/null || :
    if deb-systemd-helper --quiet --user was-enabled corrald.service; then
      deb-systemd-helper --user enable corrald.service >/dev/null || :
    else
      deb-systemd-helper --user update-state corrald.service >/dev/null || :
    fi
    ;;
  abort-*) exit 0 ;;
  1 | *-*) systemctl --global --quiet preset corrald.service || : ;;
  2) upgrade=yes ;;
esac
each_manager daemon-reload
# The new daemon takes the running agents over as they are.
[ $upgrade = no ] || each_manager try-restart corrald.service
