#!/bin/bash
# extras.sh: checks the files in contrib with the programs that they are for, as far as that works
# without a desktop. contrib/README.md lists the other tests.
set -eu -o pipefail
cd "$(dirname "$0")/../contrib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "contrib: $*" >&2
  exit 1
}

# Like waybar, which reads JSON with comments.
sed 's|^ *//.*||' waybar/corral.jsonc | /usr/bin/python3 -c 'import json, sys; json.load(sys.stdin)' || wrong 'waybar/corral.jsonc is not valid JSON'
/usr/bin/python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' indicator/corral-indicator

nix-instantiate --parse nix/flake.nix >/dev/null
hash=$(nix/vendor-hash.sh)
grep -qF "vendorHash = \"$hash\";" nix/flake.nix || wrong "nix/flake.nix has another vendorHash than the modules: $hash"

# makepkg refuses to run as root. It first searches for pacman and, if it finds none, as on Debian,
# kills itself with SIGUSR1 (unless that signal is ignored). --printsrcinfo installs nothing, so any
# program can replace pacman.
cp -rL arch "$work"
chmod -R a+rwX "$work"
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$work")
(cd "$work/arch" && "${as[@]}" env PACMAN=true makepkg --printsrcinfo) >"$work/SRCINFO" || wrong 'makepkg does not take arch/PKGBUILD'
diff -u arch/.SRCINFO "$work/SRCINFO" || wrong 'arch/.SRCINFO is not what makepkg --printsrcinfo prints'
(cd "$work/arch/release" && "${as[@]}" env PACMAN=true makepkg --printsrcinfo) >/dev/null || wrong 'makepkg does not take arch/release/PKGBUILD'
diff <(sed -n '/^each_manager/,/^}/p' arch/corral.install) <(sed -n '/^each_manager/,/^}/p' ../packaging/scripts/managers.sh) ||
  wrong 'arch/corral.install has another each_manager than the packages'
