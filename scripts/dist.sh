#!/bin/bash
# dist.sh VERSION OUT [FORMAT…]: the source tarball, and packages (deb, rpm, archlinux) of what is built from it, into the directory OUT.
set -eu -o pipefail
cd "$(dirname "$0")/.."

version=$1 out=$(realpath -m "$2")
shift 2
[ $# -gt 0 ] || set -- deb rpm archlinux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/source"

# What is tracked, as it is now, committed or not.
name=corral-$version state=$(git stash create)
git archive --format=tar --prefix="$name/" "${state:-HEAD}" | gzip -n >"$out/$name.tar.gz"
tar -xzf "$out/$name.tar.gz" -C "$work/source"
date=$(git log -1 --format=%cs)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)

make -s -C "$work/source/$name" build install-files VERSION="$version" MANDATE="$date" STRIP='-s -w' DESTDIR="$work/tree" PREFIX=/usr
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
      { echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/' && echo 'Upstream-Name: Corral' &&
        echo 'Source: https://github.com/corrald/corral' && echo && echo 'Files: *' && sed -n 's/^Copyright (c) /Copyright: /p' LICENSE &&
        echo 'License: MIT' && sed -e '1,/^Copyright/d' -e '/^$/{1d;s/.*/./}' -e 's/^/ /' LICENSE | sed '1{/^ \.$/d}'; } >"$doc/copyright"
      rm "$doc/LICENSE"
      printf 'corral (%s) unstable; urgency=medium\n\n  * As of this version; the history is in the repository.\n\n -- The Corral authors <corral@users.noreply.github.com>  %s\n' \
        "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
      mkdir -p "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/lintian/overrides"
      mv "$tree/usr/share/zsh/site-functions/_corralctl" "$tree/usr/share/zsh/vendor-completions/"
      rmdir "$tree/usr/share/zsh/site-functions"
      cp packaging/lintian-overrides "$tree/usr/share/lintian/overrides/corral"
      ;;
    archlinux)
      mkdir -p "$tree/usr/share/licenses/corral"
      mv "$doc/LICENSE" "$tree/usr/share/licenses/corral/"
      ;;
  esac
  # Files, and the folders that are Corral's own: all others belong to packages that every system has.
  {
    sed -e "s|@version@|$version|" -e "s|@arch@|$(go env GOARCH)|" -e "s|@scripts@|$work|" packaging/nfpm.yaml.in
    time=$(date -ud "@$SOURCE_DATE_EPOCH" +%FT%TZ)
    find "$tree" -type f -printf "  - {src: '%p', dst: '/%P', file_info: {mode: 0%m, mtime: $time}}\n"
    find "$tree" -type d \( -name corral -o -path '*/corral/*' \) -printf "  - {dst: '/%P', type: dir, file_info: {mode: 0%m, mtime: $time}}\n"
  } >"$work/nfpm.yaml"
  go tool -modfile=tools/nfpm.mod nfpm package --config "$work/nfpm.yaml" --packager "$format" --target "$out"
  # Debian's own checker, where it is: what it may say is in packaging/lintian-overrides, with the reasons.
  if [ "$format" = deb ] && command -v lintian >/dev/null; then
    lintian --allow-root --fail-on=error,warning "$out/corral_${version}_$(go env GOARCH).deb"
  fi
done
