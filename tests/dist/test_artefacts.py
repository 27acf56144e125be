"""Checks of the artefacts in dist/, as far as this machine can run them. `make dist-…` makes them.
There are no tests of missing ones, but without any artefact the run fails.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lief
import project
import pytest

ROOT = Path(__file__).resolve().parents[2]

DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
MEGABYTE = 1_000_000
MOST = 12 * MEGABYTE
LIMIT = 120

WHEELS = sorted(DIST.glob("mitmproxy_watm-*.whl"))
COMMANDS = sorted(DIST.glob("watm-*.whl"))
PROGRAMS = sorted((ROOT / "build/dist-target").glob("*/dist/watm")) + sorted((ROOT / "build/dist-target").glob("*/dist/watm.exe"))
STATIC = [file for file in PROGRAMS if file.parts[-3] == "x86_64-unknown-linux-musl"]
APPLE = [file for file in WHEELS + PROGRAMS if "macosx" in file.name or "darwin" in str(file)]

# Libraries of every macOS since 11, by path.
LIBRARIES_OF_MACOS = {
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/Security.framework/Versions/A/Security",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libcharset.1.dylib",
    "/usr/lib/libiconv.2.dylib",
}
OLDEST_GLIBC = [2, 17]
"""The version that a wheel may need."""

MUSL = f"/lib/ld-musl-{os.uname().machine}.so.1"
"""The loader of musl."""

LIBRARIES_OF_WINDOWS = {
    "advapi32", "bcrypt", "bcryptprimitives", "combase", "crypt32", "kernel32", "ntdll", "ole32", "oleaut32", "secur32",
    "user32", "userenv", "ws2_32", "python3", "psapi", "shell32",
}  # fmt: skip


def name(file: Path) -> str:
    """Returns a program by its target."""
    return file.name if file.suffix == ".whl" else f"{file.parts[-3]}/{file.name}"


def every(files: list[Path]) -> Callable:
    """Runs a test for each of these artefacts. Without one there is no such test."""
    return pytest.mark.parametrize("file", files, ids=name) if files else lambda _: None


def run(*command: object, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def library(file: Path, folder: Path) -> Path:
    """A program, or the library in a wheel."""
    if file.suffix != ".whl":
        return file
    with zipfile.ZipFile(file) as wheel:
        [inside] = [entry for entry in wheel.namelist() if entry.endswith((".so", ".pyd"))]
        return Path(wheel.extract(inside, folder))


def test_there_is_something_to_judge():
    assert WHEELS or PROGRAMS, "dist/ is empty: `make dist-wheel-x86_64-unknown-linux-gnu` makes one artefact"


@every(WHEELS + COMMANDS)
def test_a_wheel_is_small_and_whole(file: Path):
    assert file.stat().st_size <= MOST
    with zipfile.ZipFile(file) as wheel:
        assert wheel.testzip() is None
        modules = {Path(entry).name for entry in wheel.namelist() if "/modules/" in entry}
    assert modules == {"root.watm", *(f"{name}.wasm" for name in project.NAMES)}


@every(WHEELS)
def test_a_wheel_keeps_to_the_stable_interface(file: Path):
    said = run(BIN / "abi3audit", "--strict", "--report", file)
    [report] = json.loads(said[said.index("{") :])["specs"].values()
    assert "-cp311-abi3-" in file.name
    assert all(entry["result"]["is_abi3"] and not entry["result"]["non_abi3_symbols"] for entry in report["wheel"])


@every(WHEELS)
def test_a_wheel_has_nothing_that_does_not_belong(file: Path):
    run(BIN / "check-wheel-contents", file)


@every([file for file in WHEELS if "manylinux" in file.name])
def test_a_wheel_needs_an_old_glibc_alone(file: Path):
    said = " ".join(run(BIN / "auditwheel", "show", file).split())
    version = re.search(r'platform tag: "manylinux_(\d+)_(\d+)_', said).groups()
    assert [int(part) for part in version] <= OLDEST_GLIBC


@every([file for file in WHEELS if "musllinux" in file.name])
def test_a_wheel_needs_musl_alone(file: Path, tmp_path: Path):
    inside = library(file, tmp_path)
    assert lief.ELF.parse(str(inside)).libraries == ["libc.so"]
    if file.name.endswith(f"_{os.uname().machine}.whl"):
        # Debian's musl is 1.2.3. It lists what it cannot find, which is Python.
        listed = subprocess.run([MUSL, "--list", inside], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        missing = re.findall(r"Error relocating \S+: (\w+): symbol not found", listed.stdout)
        assert "PyObject_GetAttr" in missing
        assert [name for name in missing if not name.startswith(("Py", "_Py"))] == []


@every(APPLE)
def test_macos_finds_what_it_needs(file: Path, tmp_path: Path):
    path = library(file, tmp_path)
    parsed = lief.MachO.parse(str(path))  # It owns the binary, which must not outlive it.
    [binary] = parsed
    assert {needed.name for needed in binary.libraries} - {binary_id(binary)} <= LIBRARIES_OF_MACOS
    assert list(binary.build_version.minos)[:2] == [11, 0]
    assert_signed(binary, path.read_bytes())


def binary_id(binary: lief.MachO.Binary) -> str | None:
    """Returns the install name of a library."""
    found = [command for command in binary.commands if command.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB]
    return found[0].name if found else None


def assert_signed(binary: lief.MachO.Binary, content: bytes) -> None:
    """Checks the hash of each page in the code directory: macOS on arm64 ends a program at one that differs."""
    signature = bytes(binary.code_signature.content)
    assert signature[:4] == bytes.fromhex("fade0cc0")
    count = int.from_bytes(signature[8:12])
    places = [signature[12 + 8 * at : 20 + 8 * at] for at in range(count)]
    [start] = [int.from_bytes(place[4:]) for place in places if int.from_bytes(place[:4]) == 0]
    directory = signature[start:]
    assert directory[:4] == bytes.fromhex("fade0c02")
    hashes, slots, limit = (int.from_bytes(directory[at : at + 4]) for at in (16, 28, 32))
    size, kind, page = directory[36], directory[37], 1 << directory[39]
    assert (size, kind) == (32, 2), "SHA-256"
    assert slots == -(-limit // page) > 0
    for slot in range(slots):
        expected = directory[hashes + slot * size :][:size]
        assert hashlib.sha256(content[slot * page : min((slot + 1) * page, limit)]).digest() == expected, slot


@every([file for file in WHEELS + PROGRAMS if "win_" in file.name or "windows" in str(file)])
def test_windows_finds_what_it_needs(file: Path, tmp_path: Path):
    binary = lief.PE.parse(str(library(file, tmp_path)))
    needed = {entry.name.lower().removesuffix(".dll") for entry in binary.imports}
    assert {entry for entry in needed if not entry.startswith("api-ms-win-")} <= LIBRARIES_OF_WINDOWS
    traits = binary.optional_header.dll_characteristics_lists
    assert lief.PE.OptionalHeader.DLL_CHARACTERISTICS.DYNAMIC_BASE in traits
    assert lief.PE.OptionalHeader.DLL_CHARACTERISTICS.NX_COMPAT in traits


@every(WHEELS + PROGRAMS)
def test_no_path_of_the_building_machine_is_inside(file: Path, tmp_path: Path):
    content = library(file, tmp_path).read_bytes()
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    for path in (str(ROOT), home):
        assert path.encode() not in content, path


@every(STATIC)
def test_a_static_program_needs_no_library(file: Path):
    binary = lief.ELF.parse(str(file))
    assert not list(binary.libraries) and not binary.has_interpreter


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def image_running(settings: str, folder: Path) -> Iterator[subprocess.Popen]:
    """Runs a command in the image's only layer, read-only except for the state, as the image's user
    and with its environment.
    """
    [image] = DIST.glob("watm-*-oci-amd64.tar")
    with tarfile.open(image) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}

        def blob(described: dict) -> bytes:
            return files["blobs/" + described["digest"].replace(":", "/")].read()

        manifest = json.loads(blob(json.load(files["index.json"])["manifests"][0]))
        configuration = json.loads(blob(manifest["config"]))["config"]
        (folder / "layer.tar.gz").write_bytes(blob(manifest["layers"][0]))
    root = folder / "root"
    with tarfile.open(folder / "layer.tar.gz") as layer:
        layer.extractall(root, filter="tar")
    (root / "etc/watm/watm.toml").write_text(settings)
    (root / "etc/watm/grants.toml").write_text((ROOT / "examples/container/grants.toml").read_text())
    user, _ = configuration["User"].split(":")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    script = (
        'mount --bind "$ROOT" "$ROOT" && mount -o remount,bind,ro "$ROOT" && '
        'mount -t tmpfs -o "uid=$OWNER,gid=$OWNER" none "$ROOT/var/lib/watm" && '
        'exec chroot --userspec="$OWNER:$OWNER" "$ROOT" "$@"'
    )
    environment = dict(pair.split("=", 1) for pair in configuration["Env"]) | {"ROOT": str(root), "OWNER": user}
    environment["PATH"] += ":/bin:/sbin:/usr/sbin"
    command = ["unshare", "--mount", "/bin/sh", "-c", script, "sh", *configuration["Entrypoint"], *configuration["Cmd"]]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(LIMIT)


@pytest.mark.skipif(not list(DIST.glob("watm-*-oci-amd64.tar")), reason="no image in dist/")
def test_the_image_serves_without_root_and_without_writing(tmp_path: Path):
    web, metrics, application = free_port(), free_port(), socket.create_server(("127.0.0.1", 0))
    settings = (ROOT / "examples/container/watm.toml").read_text()
    upstream = f"127.0.0.1:{application.getsockname()[1]}"
    for old, new in (("0.0.0.0:9586", f"127.0.0.1:{metrics}"), ("0.0.0.0:8443", f"127.0.0.1:{web}"), ("application:8000", upstream)):
        assert old in settings
        settings = settings.replace(old, new)
    with image_running(settings, tmp_path) as process, application:
        application.settimeout(LIMIT)
        end = time.monotonic() + LIMIT
        while True:
            with contextlib.suppress(OSError):
                client = socket.create_connection(("127.0.0.1", web), 5)
                break
            assert process.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.05)
        with client:
            client.sendall(b"hello")
            upstream, _ = application.accept()
            upstream.settimeout(LIMIT)
            heard = b""
            while not heard.endswith(b"hello"):
                heard += upstream.recv(4096)
            assert heard.startswith(b"\r\n\r\n\x00\r\nQUIT\n"), "a PROXY header"
            upstream.sendall(b"world")
            assert client.recv(5) == b"world"
            upstream.close()
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=LIMIT) as page:
            assert b"watm_connections_total" in page.read()
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Uid:\t65532\t65532" in status
        assert Path(f"/proc/{process.pid}/root/usr/bin/watm").exists()


@every(STATIC)
def test_a_static_program_runs_in_an_empty_root(file: Path, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "watm").write_bytes(file.read_bytes())
    (root / "watm").chmod(0o755)
    assert run("chroot", root, "/watm", "--version").startswith("watm ")
    assert "keygen" in run("chroot", root, "/watm", "--help")
