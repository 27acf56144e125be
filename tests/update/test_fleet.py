"""The fleet of `examples/fleet`, with fewer hosts than in its README."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from watm_test_support.repository import ROOT

from .authority import done, module, watm

FLEET = ROOT / "target" / "release" / "examples" / "fleet"
README = ROOT / "examples" / "fleet" / "README.md"
HOSTS = 100
# Seconds.
LIMIT = 120


def rounds(text: str) -> list[tuple[str, dict[str, int], dict[str, int]]]:
    """Reads each line of a round: its name, the outcomes of its updates, and the releases that run after it."""
    found = []
    for line in text.splitlines():
        row = re.fullmatch(r"(.+?) {2,}(.+?) {2,}run (.+?) {2,}\d+\.\d s", line)
        if row:
            what, outcomes, running = row.groups()
            found.append((what, counts(outcomes), counts(running)))
    return found


def counts(text: str) -> dict[str, int]:
    return {what: int(count) for count, what in (item.split(" ", 1) for item in text.split(", "))}


def test_the_simulation_is_what_its_readme_shows(plain_registry: str) -> None:
    command = [FLEET, plain_registry, str(HOSTS)]
    # The state is in memory, because each host flushes its writes, one after another.
    env = os.environ | {"TMPDIR": "/dev/shm"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)
    assert run.returncode == 0, run.stderr
    shown = re.search(r"```text\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    expected = rounds(shown)
    assert len(expected) == shown.count(" s\n")
    scale = 1000 // HOSTS
    scaled = [
        (what, *({key: count // scale for key, count in column.items()} for column in columns))
        for what, *columns in expected
    ]
    assert rounds(run.stdout) == scaled


def commands() -> list[list[str]]:
    """Returns every complete command of the program in the README."""
    shell = "".join(re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)).replace("\\\n", " ")
    lines = (line.partition("#")[0].split() for line in shell.splitlines() if line.startswith("watm "))
    return [words[1:] for words in lines if "…" not in words]


def test_the_ceremony_is_done_as_the_readme_says(
    plain_registry: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    steps = iter(commands())

    def step(beginning: str, *more: object) -> str:
        words = next(steps)
        assert " ".join(words).startswith(beginning), words
        places = {"registry.example.com": plain_registry, ":canary": ":stable"}
        for old, new in places.items():
            words = [word.replace(old, new) for word in words]
        return done(*words, *more)

    def keygen(file: str) -> str:
        return json.loads(done("keygen", file, "--unencrypted", "--json"))["public"]

    keys = {}
    for role in ("root", "release"):
        keys[f"<{role} 1>"] = json.loads(step(f"keygen {role}-1.key", "--unencrypted", "--json"))["public"]
        for number in (2, 3):
            keys[f"<{role} {number}>"] = keygen(f"{role}-{number}.key")
    keys["<notes>"] = json.loads(step("keygen notes.key", "--unencrypted", "--json"))["public"]
    record = re.search(r"```json\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    for placeholder, key in keys.items():
        record = record.replace(placeholder, key)
    pathlib.Path("root.json").write_text(record)
    step("root new")
    identity = re.search(r"^root +([0-9a-f]{64})", step("root sign"), re.MULTILINE).group(1)
    trust = next(steps)
    assert trust[-2:] == ["--id", "<id>"]
    assert watm(*trust[:-1], "0" * 64).returncode != 0
    done(*trust[:-1], identity)

    pathlib.Path("wireguard.wasm").write_bytes(module(b"first"))
    manifest = {"name": "wireguard", "release": "1.1", "expires": "2028-06-01"}
    manifest |= {"world": "water-v1", "roles": ["dialer"], "channel": "stable"}
    pathlib.Path("wireguard.json").write_text(json.dumps(manifest))
    step("seal wireguard.wasm")
    assert watm("verify", "sealed.wasm", "--json").returncode == 1, "one signature is not enough"
    step("seal sealed.wasm")
    step("publish", "--plain-http")
    update = next(steps)
    assert update[:1] == ["update"] and update[-2:] == ["--every", "1h"]
    update = [word.replace("registry.example.com", plain_registry) for word in update[:-2]]
    pathlib.Path("wireguard.wasm").unlink()
    assert done(*update, "--plain-http").startswith("updated   wireguard 1.1\n")

    step("note wireguard 1.5")
    assert "1.5 was announced" in done(*update, "--plain-http", "--note", "note.watm")

    fresh = [keys["<release 3>"], keygen("release-4.key"), keygen("release-5.key")]
    following = json.loads(record) | {"epoch": 2, "revoked": [keys["<release 1>"], keys["<release 2>"]]}
    following["delegations"][0]["keys"] = fresh
    pathlib.Path("root-2.json").write_text(json.dumps(following))
    step("root new")
    step("root sign")
    pathlib.Path("wireguard.wasm").rename("old.wasm")
    pathlib.Path("wireguard.wasm").write_bytes(module(b"second"))
    pathlib.Path("wireguard-2.1.json").write_text(json.dumps(manifest | {"release": "2.1"}))
    step("seal wireguard.wasm")
    assert next(steps, None) is None
    done("seal", "sealed.wasm", "--key", "release-4.key", "--output", "sealed.wasm")
    done("publish", "sealed.wasm", f"oci://{plain_registry}/fleet/wireguard:stable", "--plain-http")
    pathlib.Path("old.wasm").rename("wireguard.wasm")
    assert done(*update, "--plain-http").startswith("updated   wireguard 2.1, from 1.1\n")
