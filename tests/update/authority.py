"""The signer of modules in the tests. It uses the commands of `watm`."""

import datetime
import json
import pathlib
import subprocess

from watm_test_support.repository import WATM

# A date near enough to cause no warning.
EXPIRES = {"expires": (datetime.date.today() + datetime.timedelta(days=300)).isoformat()}
# Seconds; each command takes milliseconds.
LIMIT = 60


def watm(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program, with any result."""
    command = [WATM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)


def done(*arguments: object) -> str:
    """Runs the program, which must succeed. Returns its output."""
    run = watm(*arguments)
    assert run.returncode == 0, (arguments, run.stdout, run.stderr)
    return run.stdout


def module(filling: bytes) -> bytes:
    """Returns a module with nothing but a custom section."""
    content = b"\x04fill" + filling
    length, size = bytearray(), len(content)
    while True:
        low, size = size & 0x7F, size >> 7
        length.append(low | (0x80 if size else 0))
        if not size:
            break
    return b"\0asm\x01\0\0\0\0" + bytes(length) + content


class Authority:
    """A root with one key, and a key for `wireguard` and its notes."""

    def __init__(self, folder: pathlib.Path, names: list[str] = ["wireguard"]) -> None:
        self.folder = folder
        public = {name: self._keygen(name) for name in ("root", "release", "notes")}
        delegation = {"threshold": 1, "names": names}
        record = {
            "expires": "2100-01-01",
            "threshold": 1,
            "keys": [public["root"]],
            "delegations": [
                {"name": "release", "keys": [public["release"]], **delegation},
                {"name": "notes", "purpose": "freshness", "keys": [public["notes"]], **delegation},
            ],
        }
        self.root = folder / "root.watm"
        text = folder / "root.json"
        text.write_text(json.dumps(record))
        done("root", "new", text, "--output", self.root, "--key", folder / "root.key")

    def _keygen(self, name: str) -> str:
        text = done("keygen", self.folder / f"{name}.key", "--unencrypted", "--json")
        return json.loads(text)["public"]

    def seal(self, release: str, size: int = 1_000_000, **manifest: object) -> bytes:
        """Returns a sealed module of about this size, with different content for each release."""
        filling = release.encode() * (size // len(release))
        return self.seal_body(module(filling), release, **{"world": "water-v1", "roles": ["dialer"]} | manifest)

    def seal_body(self, unsealed: bytes, release: str, **manifest: object) -> bytes:
        """Returns this module, sealed as `wireguard`."""
        body, output = self.folder / "body.wasm", self.folder / "sealed.wasm"
        body.write_bytes(unsealed)
        text = self.folder / "manifest.json"
        described = {"name": "wireguard", "release": release, "expires": "2099-01-01"} | manifest
        text.write_text(json.dumps(described))
        key = self.folder / "release.key"
        done("seal", body, "--manifest", text, "--root", self.root, "--key", key, "--output", output)
        return output.read_bytes()

    def note(self, release: str) -> bytes:
        output = self.folder / "note.watm"
        key = self.folder / "notes.key"
        done("note", "wireguard", release, "--root", self.root, "--key", key, "--output", output)
        return output.read_bytes()


class Host:
    """A folder with a place and a state, which the command updates."""

    def __init__(self, folder: pathlib.Path, authority: Authority) -> None:
        folder.mkdir()
        self.folder = folder
        self.place = folder / "module.wasm"
        self.state = folder / "state"
        self.options = ["--to", self.place, "--root", authority.root, "--state", self.state, "--name", "wireguard"]

    def update(self, source: object, *more: object) -> tuple[int, dict]:
        """Returns the exit status and the report."""
        run = watm("update", source, *self.options, *more, "--json")
        assert run.stdout.count("\n") == 1, (run.stdout, run.stderr)
        report = json.loads(run.stdout)
        refused = report["outcome"] == "refused"
        assert run.stderr.startswith("watm: ") == refused, run.stderr
        assert run.stderr.count("\n") == refused, run.stderr
        return run.returncode, report
