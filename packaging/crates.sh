#!/usr/bin/env bash
# Packs every crate that is for others as crates.io would get it, into build/crates/package. Does not compile them:
# the tests have.
set -eu
cd "$(dirname "$0")/.."

rm -rf build/crates/package
crates=$(cargo metadata --format-version 1 --locked --no-deps | "$(tests/setup/find-python.sh)" -c '
import json, sys
print(*("--package=" + crate["name"] for crate in json.load(sys.stdin)["packages"] if crate["publish"] is None))')
# These three lie in the workspace of the transports, hence a call of its own, and no registry has them before the others.
cargo package --quiet --locked --no-verify --allow-dirty --target-dir build/crates \
    --manifest-path watm/Cargo.toml --package watm-schema --package watm-proxy-header --package watm-socks-wire
# shellcheck disable=SC2086 # one argument for each crate
cargo package --quiet --no-verify --allow-dirty --target-dir build/crates $crates \
    --config 'patch.crates-io.watm-schema.path="watm/schema"' \
    --config 'patch.crates-io.watm-proxy-header.path="watm/proxy-header"' \
    --config 'patch.crates-io.watm-socks-wire.path="watm/socks-wire"'
ls build/crates/package/*.crate
