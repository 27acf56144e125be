#!/usr/bin/env bash
# Makes the commit and the tag of a release: release.sh VERSION. Nothing is pushed.
#
# The version is written to every manifest and to the changelog, the lock files follow, and the crates are packed to
# see that they would be accepted.
set -eu
cd "$(dirname "$0")/.."

version=$1
python=$(tests/setup/find-python.sh)
if [ -n "$(git status --porcelain)" ]; then
    echo "release.sh: the working tree has changes; commit them first" >&2
    exit 1
fi
"$python" packaging/version.py bump "$version"
for manifest in Cargo.toml watm/Cargo.toml watm/tls/Cargo.toml; do
    cargo metadata --format-version 1 --manifest-path "$manifest" > /dev/null
done
"$python" packaging/version.py check
packaging/crates.sh
git commit -qam "release: $version"
git tag -a "v$version" -m "WATM $version"
echo "v$version is tagged; push it with: git push origin HEAD v$version"
