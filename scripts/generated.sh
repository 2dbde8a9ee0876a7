#!/bin/bash
# generated.sh: regenerates every generated file and fails if that changes a file, or if go.mod is
# not tidy.
set -eu -o pipefail
cd "$(dirname "$0")/.."

sums() { git ls-files -coz --exclude-standard | xargs -0 sha256sum --; }

before=$(sums)
go generate ./...
after=$(sums)
diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") >&2 || {
  echo 'generated files were not up to date; they are now' >&2
  exit 1
}
go mod tidy -diff >&2 || {
  echo 'go.mod is not tidy: go mod tidy' >&2
  exit 1
}
