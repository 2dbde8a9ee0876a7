#!/bin/bash
# vendor-hash.sh: prints the vendorHash for flake.nix, which is Nix's hash of the folder that `go mod vendor` creates.
# Needs go and nix.
set -eu
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go mod vendor -o "$dir/vendor"
nix --extra-experimental-features nix-command hash path "$dir/vendor"
