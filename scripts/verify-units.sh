#!/bin/bash
# verify-units.sh: checks the units as installed with systemd itself, and fails on any warning.
set -eu -o pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/units" "$dir/runtime"

# systemd only checks that the program exists.
install -m 755 /dev/null "$dir/bin/corrald"
install -m 755 /dev/null "$dir/bin/corralctl"
for unit in packaging/*.service.in; do
  sed "s|@bindir@|$dir/bin|" "$unit" >"$dir/units/$(basename "$unit" .in)"
done
cp packaging/*.slice packaging/*.path "$dir/units"

output=$(XDG_RUNTIME_DIR=$dir/runtime SYSTEMD_UNIT_PATH=$dir/units: systemd-analyze --user --man=no verify "$dir"/units/* 2>&1) || {
  printf '%s\n' "$output" >&2
  exit 1
}
[ -z "$output" ] || {
  printf '%s\n' "$output" >&2
  exit 1
}

# The bus finds the daemon by Name= and asks systemd for the unit in SystemdService=.
for line in Name=io.github.corrald.Corral1 SystemdService=corrald.service; do
  grep -qx "$line" packaging/io.github.corrald.Corral1.service
done
