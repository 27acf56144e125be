"""Checks where code may depend on the operating system."""

import re
import subprocess
from pathlib import Path

import pytest

from watm_test_support.repository import ROOT

# The permitted files. Sockets, file permissions, freed and executable memory, processes and signals differ
# between systems; nothing else does.
ALLOWED = (
    "runtime/engine/src/allocator.rs",
    "runtime/engine/src/slice.rs",
    "runtime/net/src/sockets/",
    "runtime/engine/src/executable_memory.rs",
    "runtime/launch/src/",
    "runtime/cli/src/system.rs",
    "runtime/seal/src/private.rs",
    "host-python/python/mitmproxy_watm/mode/process.py",
    "host-python/python/mitmproxy_watm/mode/signals.py",
)

# The product: the sources of wheels, programs and modules. Tests may depend on the system that they
# run on.
FOLDERS = ("runtime", "host-python", "watm", "wit", "examples")
NOT_PRODUCT = re.compile(r"/tests/|/benches/|/assets/")

RUST = re.compile(
    r"""
    \b(cfg!?|cfg_attr)\s*\(.*\b(unix|windows|target_os|target_vendor|target_family\s*=\s*"(unix|windows)")
    | \bstd::os\b
    | \b(libc|rustix|nix|winapi|windows_sys|windows)::
    | \b(RawFd|OwnedFd|AsRawFd|AsFd|RawSocket|PermissionsExt|MetadataExt|OpenOptionsExt)\b
    | "/(proc|dev|sys)/
    """,
    re.VERBOSE,
)
PYTHON = re.compile(
    r"""
    \bos\.(name|uname|fork|chmod|fchmod|umask|get(e?)uid|get(e?)gid|mkfifo|eventfd)\b
    | \bsys\.(platform|getwindowsversion)\b
    | \bplatform\.(system|platform|uname|win32_ver|mac_ver)\b
    | ^\s*(import|from)\s+(fcntl|grp|msvcrt|platform|posix|pwd|resource|signal|termios|winreg)\b
    | \bst_(mode|uid|gid)\b
    | \bAF_UNIX\b
    | ["']/(proc|dev|sys)/
    """,
    re.VERBOSE | re.MULTILINE,
)
PATTERNS = {".rs": RUST, ".py": PYTHON}

# Crates for one operating system, and the crates that may use them.
CRATES = re.compile(r"^(libc|nix|rustix|winapi|windows|windows-\w+)\b", re.MULTILINE)
CRATE_USERS = {
    "runtime/Cargo.toml",
    "runtime/cli/Cargo.toml",
    "runtime/engine/Cargo.toml",
    "runtime/launch/Cargo.toml",
    "runtime/net/Cargo.toml",
    "runtime/seal/Cargo.toml",
}


def product() -> list[str]:
    """Returns the files of the product, tracked or not ignored."""
    output = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    names = [name for name in output.splitlines() if not NOT_PRODUCT.search(name)]
    return [name for name in names if (ROOT / name).is_file()]


def knowing(name: str) -> list[str]:
    """Returns the lines of a file that depend on the operating system."""
    pattern = PATTERNS.get(Path(name).suffix)
    if pattern is None:
        return []
    lines = (ROOT / name).read_text().splitlines()
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if pattern.search(line)]


def test_nothing_else_knows_the_operating_system():
    names = product()
    assert len(names) > 100
    found = [line for name in names if not name.startswith(ALLOWED) for line in knowing(name)]
    assert not found, "move it to " + " or ".join(ALLOWED) + ":\n" + "\n".join(found)


@pytest.mark.parametrize("allowed", ALLOWED)
def test_what_may_know_it_does(allowed):
    assert any(knowing(name) for name in product() if name.startswith(allowed))


def test_crates_of_one_operating_system_are_the_runtimes_alone():
    users = {name for name in product() if Path(name).name == "Cargo.toml" and CRATES.search((ROOT / name).read_text())}
    assert users == CRATE_USERS


@pytest.mark.parametrize(
    ("suffix", "line"),
    [
        (".rs", "#[cfg(unix)]"),
        (".rs", '#[cfg(any(target_os = "linux", test))]'),
        (".rs", "if cfg!(windows) {"),
        (".rs", "use std::os::fd::AsRawFd;"),
        (".rs", "let number = libc::EIO;"),
        (".rs", "rustix::process::geteuid()"),
        (".py", 'if os.name == "nt":'),
        (".py", 'windows = sys.platform == "win32"'),
        (".py", "    import fcntl"),
        (".py", "if path.stat().st_mode & 0o077:"),
    ],
)
def test_knowledge_is_recognised(suffix, line):
    assert PATTERNS[suffix].search(line)


@pytest.mark.parametrize(
    ("suffix", "line"),
    [
        (".rs", '#[cfg(target_family = "wasm")]'),
        (".rs", "for windows in bytes.windows(4) {"),
        (".rs", "#[cfg(test)]"),
        (".py", "os.link(draft, path)"),
        (".py", "import selectors"),
    ],
)
def test_what_is_the_same_everywhere_is_not(suffix, line):
    assert not PATTERNS[suffix].search(line)
