#!/bin/bash
# dist.sh VERSION OUT [FORMAT…]: writes the source archive, the archive of its vendored modules for
# builds without network access, and packages (deb, rpm, archlinux) built from it to the directory
# OUT.
set -eu -o pipefail
cd "$(dirname "$0")/.."

version=$1 out=$(realpath -m "$2")
shift 2
[ $# -gt 0 ] || set -- deb rpm archlinux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/source"

# The tracked files, with uncommitted changes.
name=corral-$version state=$(git stash create)
git archive --format=tar --prefix="$name/" "${state:-HEAD}" | gzip -n >"$out/$name.tar.gz"
tar -xzf "$out/$name.tar.gz" -C "$work/source"
date=$(git log -1 --format=%cs)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)

# To be unpacked in the source directory; then every go command uses it.
(cd "$work/source/$name" && go mod vendor -o "$work/vendored/$name/vendor")
tar -C "$work/vendored" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n >"$out/$name-vendor.tar.gz"

make -s -C "$work/source/$name" build install-files VERSION="$version" MANDATE="$date" STRIP='-s -w' BUILDMODE=pie DESTDIR="$work/tree" PREFIX=/usr
cp "$work/source/$name/build/licenses/sbom.cdx.json" "$out/$name.cdx.json"
find "$work/tree/usr/share/man" -type f -exec gzip -9n {} +

for phase in postinstall postupgrade preremove postremove; do
  { echo '#!/bin/sh' && echo 'set -e' && cat packaging/scripts/managers.sh "packaging/scripts/$phase.sh"; } >"$work/$phase"
done
for format in "$@"; do
  tree=$work/$format
  cp -a "$work/tree" "$tree"
  doc=$tree/usr/share/doc/corral
  case $format in
    deb)
      cp "$work/source/$name/build/licenses/copyright" "$doc/copyright"
      rm "$doc/LICENSE" "$doc/THIRD-PARTY-NOTICES" # copyright contains both
      printf 'corral (%s) unstable; urgency=medium\n\n  * As of this version; the history is in the repository.\n\n -- The Corral authors <corral@users.noreply.github.com>  %s\n' \
        "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
      mkdir -p "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/lintian/overrides"
      mv "$tree/usr/share/zsh/site-functions/_corralctl" "$tree/usr/share/zsh/vendor-completions/"
      rmdir "$tree/usr/share/zsh/site-functions"
      cp debian/corral.lintian-overrides "$tree/usr/share/lintian/overrides/corral"
      ;;
    archlinux | rpm)
      mkdir -p "$tree/usr/share/licenses/corral"
      mv "$doc/LICENSE" "$doc/THIRD-PARTY-NOTICES" "$tree/usr/share/licenses/corral/"
      ;;
  esac
  # The deb already has a changelog.
  changelog=
  if [ "$format" = rpm ]; then
    changelog=$work/changelog.yaml
    printf -- '- semver: "%s"\n  date: %s\n  packager: The Corral authors <corral@users.noreply.github.com>\n  changes:\n    - note: See CHANGELOG.md.\n' \
      "$version-1" "$(date -ud "@$SOURCE_DATE_EPOCH" +%FT%TZ)" >"$changelog"
  fi
  # The files, and Corral's own directories: all others belong to packages that every system has.
  {
    sed -e "s|@version@|$version|" -e "s|@arch@|$(go env GOARCH)|" -e "s|@scripts@|$work|" -e "s|@changelog@|$changelog|" packaging/nfpm.yaml.in
    time=$(date -ud "@$SOURCE_DATE_EPOCH" +%FT%TZ)
    # The other formats do not know rpm's file types and would omit such files.
    find "$tree" -type f -printf "  - {src: '%p', dst: '/%P', file_info: {mode: 0%m, mtime: $time}}\n" |
      if [ "$format" = rpm ]; then
        sed -e "\\#dst: '/usr/share/licenses/#s/ file_info/ type: license,&/" -e "\\#dst: '/usr/share/\(doc\|man\)/#s/ file_info/ type: doc,&/"
      else
        cat
      fi
    find "$tree" -type d \( -name corral -o -path '*/corral/*' \) -printf "  - {dst: '/%P', type: dir, file_info: {mode: 0%m, mtime: $time}}\n"
  } >"$work/nfpm.yaml"
  go tool -modfile=tools/nfpm.mod nfpm package --config "$work/nfpm.yaml" --packager "$format" --target "$out"
  # Debian's package checker, if it is installed: debian/corral.lintian-overrides has the accepted
  # findings with their reasons.
  if [ "$format" = deb ] && command -v lintian >/dev/null; then
    lintian --allow-root --fail-on=error,warning "$out/corral_${version}_$(go env GOARCH).deb"
  fi
done
