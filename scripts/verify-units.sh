#!/bin/bash
# verify-units.sh: has systemd itself read the units as they would be installed, and takes no warning for good.
set -eu -o pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/units" "$dir/runtime"

# systemd looks whether the program is there, not what it does.
install -m 755 /dev/null "$dir/bin/corrald"
install -m 755 /dev/null "$dir/bin/corralctl"
for unit in packaging/*.service.in; do
  sed "s|@bindir@|$dir/bin|" "$unit" >"$dir/units/$(basename "$unit" .in)"
done
cp packaging/*.slice "$dir/units"

said=$(XDG_RUNTIME_DIR=$dir/runtime SYSTEMD_UNIT_PATH=$dir/units: systemd-analyze --user --man=no verify "$dir"/units/* 2>&1) || {
  printf '%s\n' "$said" >&2
  exit 1
}
[ -z "$said" ] || {
  printf '%s\n' "$said" >&2
  exit 1
}

# The bus finds the daemon by these two names, systemd by the third.
for line in Name=io.github.corrald.Corral1 SystemdService=corrald.service; do
  grep -qx "$line" packaging/io.github.corrald.Corral1.service
done
