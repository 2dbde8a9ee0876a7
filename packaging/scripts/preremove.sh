# shellcheck shell=sh
# Argument: deb "remove" or "upgrade"; rpm the number of remaining versions; Arch VERSION-RELEASE.
case ${1-} in
  upgrade | deconfigure | failed-upgrade | 1) exit 0 ;;
  0 | *-*) systemctl --global --quiet disable corrald.service || : ;;
esac
each_manager stop corrald.service 'corral-remote@*.service'
echo 'corral: the daemon is stopped. Running agents continue; each user stops them with: systemctl --user stop app-corral.slice'
echo "corral: the records of sessions stay, in each user's \$XDG_STATE_HOME/corral"
