# shellcheck shell=sh
# Only for Arch Linux: the new daemon adopts the running agents.
each_manager daemon-reload
each_manager try-restart corrald.service 'corral-remote@*.service'
