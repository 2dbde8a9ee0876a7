# shellcheck shell=sh
# Argument: deb "configure OLD-VERSION", also after a removal; rpm the number of versions installed
# now; Arch VERSION-RELEASE.
case ${1-} in
  abort-*) exit 0 ;;
esac
each_manager daemon-reload
# The new daemon adopts the running agents. If the daemon was enabled before the package was
# removed, it is started again.
each_manager try-restart corrald.service 'corral-remote@*.service'
enabled=yes each_manager start corrald.service
