#!/usr/bin/env bash
# Rewrites tests/setup/constraints-VERSION.txt with the versions that pip installs today for the tests and
# the wheel.
# Usage: pins.sh VERSION…
set -eu
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in "$@"; do
    "$(tests/setup/find-python.sh "$version")" -m venv "$folder/$version"
    wheel=$(sed -n 's/^dependencies = \["\(.*\)"\]$/\1/p' host-python/pyproject.toml)
    "$folder/$version/bin/pip" install -q --dry-run --ignore-installed --report "$folder/report" \
        -r "tests/setup/requirements-$version.txt" "$wheel"
    {
        echo "# Every package that requirements-$version.txt and the wheel bring along, in the version that is tested."
        echo "# make pins writes this file anew."
        "$folder/$version/bin/python" -c '
import json, sys
found = [each["metadata"] for each in json.load(open(sys.argv[1]))["install"]]
print(*sorted("{}=={}".format(m["name"].lower().replace("_", "-"), m["version"]) for m in found), sep="\n")' "$folder/report"
    } >"tests/setup/constraints-$version.txt"
done
