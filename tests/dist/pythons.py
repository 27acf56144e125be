"""Pythons of other machines, with mitmproxy and the wheel in dist/ for them: pythons.py windows|arm64 FOLDER

FOLDER/bin/mitmdump-watm runs in an emulator: wine, or QEMU. The interpreter for Windows is a Maven artifact of Bytedeco,
and the one for arm64 is Debian's. `make test-emulated` calls this.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import lief

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
TOOLS = Path(sys.executable).parent
LIMIT = 900

WINDOWS_PYTHON = "org.bytedeco:cpython:3.13.5-1.5.12:jar:windows-x86_64"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"

APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""

LAUNCHER = """\
#!/bin/sh
exec {command} -c 'import sys; from mitmproxy_watm.cli import mitmdump; sys.exit(mitmdump())' "$@"
"""


def windows(folder: Path) -> None:
    """CPython 3.13 for Windows, in wine."""
    home = folder / "org" / "bytedeco" / "cpython" / "windows-x86_64"
    if not (home / "python3.dll").exists():
        run("mvn", "-q", "--batch-mode", COPY, f"-Dartifact={WINDOWS_PYTHON}", f"-DoutputDirectory={folder / 'jar'}")
        [jar] = (folder / "jar").glob("*.jar")
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(folder)
        # Python describes its platform without it too. wine lacks a function that it calls.
        (home / "lib" / "_wmi.pyd").unlink()
        _forward(home / "python313.dll", home / "python3.dll")
    install(home / "lib" / "site-packages", "x86_64-pc-windows-msvc", "3.13")
    launcher(folder, f"{ROOT / 'tests/cross/wine.sh'} {home / 'python.exe'}")


def _forward(real: Path, made: Path) -> None:
    """Makes the library of the stable interface, which the jar lacks: each of its names is one of the real library."""
    # The entries live as long as what was parsed.
    library = lief.PE.parse(str(real))
    names = sorted(entry.name for entry in library.get_export().entries if entry.name)
    definition = made.with_suffix(".def")
    lines = (f"  {name} = {real.stem}.{name}" for name in names)
    definition.write_text(f"LIBRARY {made.name}\nEXPORTS\n" + "\n".join(lines) + "\n")
    source = made.with_suffix(".c")
    source.write_text("int _DllMainCRTStartup(void *library, unsigned reason, void *reserved) { return 1; }\n")
    zig = [ROOT / "build/dist-tools/bin/python", "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib"]
    run(*zig, "-o", made, source, definition)


def arm64(folder: Path) -> None:
    """Debian's Python, in QEMU's emulation of a user's process."""
    root = folder / "root"
    if not root.exists():
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        configuration = folder / "apt.conf"
        configuration.write_text(APT.format(folder=folder))
        apt = ["apt-get", "-q", "-y", "-c", configuration]
        run(*apt, "update")
        run(*apt, "install", "--download-only", "python3", "ca-certificates")
        for package in (folder / "cache" / "archives").glob("*.deb"):
            run("dpkg-deb", "--extract", package, root)
    [python] = root.glob("usr/bin/python3.*[0-9]")
    site = folder / "site"
    install(site, "aarch64-manylinux2014", python.name.removeprefix("python"))
    launcher(folder, f"qemu-aarch64 -L {root} -E PYTHONPATH={site} {python}")


def install(site: Path, platform: str, python: str) -> None:
    """Installs mitmproxy and the wheel as pip would there, with the versions of the tests."""
    shutil.rmtree(site, ignore_errors=True)
    # Some of mitmproxy's dependencies are sources without machine code.
    command = [TOOLS / "uv", "pip", "install", "-q", "--target", site, "--python-platform", platform, "--python-version", python]
    pins = ROOT / "tests" / "setup" / f"constraints-{python}.txt"
    command += ["--find-links", DIST, "--only-binary", "mitmproxy-watm", "--no-cache", "-c", pins]
    run(*command, "mitmproxy-watm[mitmproxy]")


def launcher(folder: Path, python: str) -> None:
    """Writes the program that the tests start."""
    program = folder / "bin" / "mitmdump-watm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(LAUNCHER.format(command=python))
    program.chmod(0o755)


def run(*command: object) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"pythons.py: {command[0]} failed:\n{done.stdout}")


if __name__ == "__main__":
    makers = {"windows": windows, "arm64": arm64}
    match sys.argv[1:]:
        case [name, folder] if name in makers:
            Path(folder).mkdir(parents=True, exist_ok=True)
            makers[name](Path(folder).resolve())
        case _:
            sys.exit(__doc__)
