# shellcheck shell=sh
# Arch Linux alone: the new daemon takes the running agents over as they are.
each_manager daemon-reload
each_manager try-restart corrald.service
