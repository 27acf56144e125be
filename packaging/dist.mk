# `make dist`: everything of a release, in dist/, built on one machine: see packaging/README.md. Each artefact is a
# target of its own, such as `make dist-wheel-aarch64-apple-darwin`.

WHEEL_TARGETS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
	aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-gnullvm aarch64-pc-windows-gnullvm
PROGRAM_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
	aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-gnullvm aarch64-pc-windows-gnullvm
# The targets of Debian packages and images.
STATIC_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl

# The static program for this machine, which makes parts of the artefacts too, so that no other is built for that.
STATIC_HERE := $(shell uname -m)-unknown-linux-musl
PYTHON_OF_DIST := WATM_HOST_PROGRAM=$(CURDIR)/$(BUILD)/dist-target/$(STATIC_HERE)/dist/watm $(BUILD)/dist-tools/bin/python

.PHONY: dist dist-sums dist-about dist-modules dist-prepared
dist: $(WHEEL_TARGETS:%=dist-wheel-%) $(PROGRAM_TARGETS:%=dist-archive-%) $(PROGRAM_TARGETS:%=dist-command-%) \
		$(STATIC_TARGETS:%=dist-deb-%) $(STATIC_TARGETS:%=dist-image-%) dist-modules dist-about
	$(MAKE) --no-print-directory dist-sums

# Checksums of the files in dist/.
dist-sums:
	cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS

$(BUILD)/dist-tools/ready: packaging/requirements.txt
	"$$(tests/setup/find-python.sh)" -m venv --clear $(@D)
	$(@D)/bin/pip install -q -r $<
	touch $@

# The bill of materials, the licences, and the changes.
dist-about: $(BUILD)/dist-tools/ready
	$(PYTHON_OF_DIST) packaging/dependencies.py licences
	$(PYTHON_OF_DIST) packaging/dependencies.py sbom
	$(PYTHON_OF_DIST) packaging/version.py check
	$(PYTHON_OF_DIST) packaging/version.py notes

# The sealed modules with their root, for hosts that are installed already.
dist-modules: dist-prepared
	$(PYTHON_OF_DIST) packaging/program.py modules

# Makes the parts that every artefact has, and the program that verifies the modules and writes the manual.
dist-prepared: dist-program-$(STATIC_HERE) dist-about

# A program and a library for a target are built at once: see build.sh. There is no program for glibc.
LIBRARY_ALONE := $(filter-out $(PROGRAM_TARGETS),$(WHEEL_TARGETS))

.PHONY: $(WHEEL_TARGETS:%=dist-library-%) $(PROGRAM_TARGETS:%=dist-program-%) $(PROGRAM_TARGETS:%=dist-both-%)
$(PROGRAM_TARGETS:%=dist-both-%): dist-both-%: sealed $(BUILD)/dist-tools/ready
	packaging/build.sh both $*

$(PROGRAM_TARGETS:%=dist-library-%): dist-library-%: dist-both-%
$(PROGRAM_TARGETS:%=dist-program-%): dist-program-%: dist-both-%

$(LIBRARY_ALONE:%=dist-library-%): dist-library-%: sealed $(BUILD)/dist-tools/ready
	packaging/build.sh library $*

.PHONY: $(WHEEL_TARGETS:%=dist-wheel-%)
$(WHEEL_TARGETS:%=dist-wheel-%): dist-wheel-%: dist-library-% dist-prepared
	$(PYTHON_OF_DIST) packaging/package.py $*

.PHONY: $(PROGRAM_TARGETS:%=dist-archive-%) $(PROGRAM_TARGETS:%=dist-command-%)
$(PROGRAM_TARGETS:%=dist-archive-%): dist-archive-%: dist-program-% dist-prepared
	$(PYTHON_OF_DIST) packaging/program.py archive $*

$(PROGRAM_TARGETS:%=dist-command-%): dist-command-%: dist-program-% dist-prepared
	$(PYTHON_OF_DIST) packaging/program.py wheel $*

.PHONY: $(STATIC_TARGETS:%=dist-deb-%) $(STATIC_TARGETS:%=dist-image-%)
$(STATIC_TARGETS:%=dist-deb-%): dist-deb-%: dist-program-% dist-prepared
	$(PYTHON_OF_DIST) packaging/program.py deb $*

$(STATIC_TARGETS:%=dist-image-%): dist-image-%: dist-program-% dist-prepared
	$(PYTHON_OF_DIST) packaging/program.py image $*

# The crates as crates.io would get them, in build/crates.
.PHONY: dist-crates
dist-crates:
	packaging/crates.sh

# Tests of the artefacts. `make test` runs those that need no artefact, and `test-dist` tests the files in dist/.

CHECKS := $(BUILD)/dist-checks
PYTEST_OF_DIST := PYTHONPATH=$(CURDIR)/tests/support:$(CURDIR)/packaging $(CHECKS)/bin/python -m pytest -q

$(CHECKS)/ready: tests/dist/requirements.txt
	"$$(tests/setup/find-python.sh)" -m venv --clear $(@D)
	$(@D)/bin/pip install -q -r $<
	touch $@

$(CHECKS)/bin/actionlint: | $(CHECKS)/ready
	GOBIN=$(CURDIR)/$(@D) "$$(tests/setup/find-go.sh)" install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

.PHONY: test-packaging run-test-packaging test-dist test-installed test-native
test-packaging: sealed program $(CHECKS)/bin/actionlint
	$(MAKE) --no-print-directory run-test-packaging

run-test-packaging: $(CHECKS)/bin/actionlint
	$(PYTEST_OF_DIST) tests/dist --ignore tests/dist/test_artefacts.py --ignore tests/dist/test_installed.py \
		--ignore tests/dist/test_emulated.py

test-dist: $(CHECKS)/ready test-installed
	tests/setup/apt.sh need /lib/ld-musl-$$(uname -m).so.1
	$(PYTEST_OF_DIST) tests/dist/test_artefacts.py

# Installs the wheels for this machine from dist/, and uses them.
test-installed: $(CHECKS)/ready $(BUILD)/wgclient
	$(PYTEST_OF_DIST) tests/dist/test_installed.py

# Runs the artefacts in dist/ for Windows in wine, and those for arm64 in QEMU, with real clients. Without a wheel for one
# of them, its Python is not prepared.
EMULATED_windows := $(wildcard dist/mitmproxy_watm-*-win_amd64.whl)
EMULATED_arm64 := $(wildcard dist/mitmproxy_watm-*-manylinux*_aarch64.whl)

.PHONY: test-emulated $(addprefix python-of-,windows arm64)
test-emulated: $(BUILD)/venv-3.13/ready $(BUILD)/wgclient $(CHECKS)/ready cross-programs $(BUILD)/wine/bcryptprimitives.dll
	tests/setup/apt.sh need mvn
	$(MAKE) --no-print-directory $(if $(EMULATED_windows),python-of-windows) $(if $(EMULATED_arm64),python-of-arm64) run-test-emulated

$(addprefix python-of-,windows arm64): python-of-%: $(CHECKS)/ready $(BUILD)/dist-tools/ready
	$(CHECKS)/bin/python tests/dist/pythons.py $* $(BUILD)/pythons/$*

.PHONY: run-test-emulated
run-test-emulated:
	$(BUILD)/venv-3.13/bin/python -m pytest -q tests/dist/test_emulated.py

# The host's unit tests, on any system that Rust is on.
test-native:
	cargo test --release --locked --workspace --lib --bins

# The wheels to PyPI, from a workflow that PyPI trusts.
.PHONY: publish-wheels
publish-wheels:
	"$$(tests/setup/find-python.sh)" -m venv --clear $(BUILD)/publish
	$(BUILD)/publish/bin/pip install -q uv==0.13.9 pypi-attestations==0.0.30
	$(BUILD)/publish/bin/pypi-attestations sign dist/*.whl
	$(BUILD)/publish/bin/uv publish --trusted-publishing always dist/*.whl

# A commit and a tag for VERSION, which nothing is pushed from.
.PHONY: release
release:
	$(if $(VERSION),,$(error VERSION is the version to release, such as 0.2.0))
	packaging/release.sh $(VERSION)
