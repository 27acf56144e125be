"""The seals of a wheel's modules: made with the wheel, and remade only when a module changes."""

import os
import pathlib
import subprocess

from watm_test_support.repository import ROOT, SEAL

from .authority import Authority, done, module


class Wheel:
    """The folders in which `make wheel` seals."""

    count = 0

    def __init__(self, folder: pathlib.Path) -> None:
        self.state, self.packaged = folder / "seal", folder / "modules"
        self.source = folder / "plain.wasm"

    def seal(self, **env: object) -> bytes:
        """Seals the module as plain, and checks the seal."""
        command = [*SEAL, self.state, self.packaged, f"plain={self.source}"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WATM_")}
        run = subprocess.run(
            list(map(str, command)),
            env=clean | {name: str(value) for name, value in env.items()},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        sealed = self.packaged / "plain.wasm"
        root = self.packaged / "root.watm"
        # The state is new for each check.
        self.count += 1
        nobody = self.state / f"nobody-{self.count}"
        done("verify", sealed, "--root", root, "--state", nobody, "--accept")
        return sealed.read_bytes()


def test_an_unchanged_module_keeps_its_seal_and_a_changed_one_gets_another(tmp_path: pathlib.Path) -> None:
    wheel = Wheel(tmp_path)
    wheel.source.write_bytes(water(b"first"))
    first = wheel.seal()
    assert wheel.seal() == first
    os.utime(wheel.source)
    assert wheel.seal() == first, "it was built again, and is the same"
    wheel.source.write_bytes(water(b"second"))
    second = wheel.seal()
    assert b"second" in second and b"first" not in second
    assert wheel.seal() == second
    # A removed file is made again, and another root makes another seal.
    (wheel.packaged / "plain.wasm").unlink()
    assert b"second" in wheel.seal()
    before = (wheel.packaged / "root.watm").read_bytes()
    (wheel.state / "root.watm").unlink()
    third = wheel.seal()
    assert (wheel.packaged / "root.watm").read_bytes() != before
    assert third != second


def test_a_release_is_sealed_by_its_key_and_again_for_another_number(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "authority"
    folder.mkdir()
    authority = Authority(folder, names=["watm/*"])
    wheel = Wheel(tmp_path)
    wheel.source.write_bytes(water(b"first"))
    release = {"WATM_RELEASE_KEY": folder / "release.key", "WATM_ROOT": authority.root}
    first = wheel.seal(WATM_RELEASE="1.7", **release)
    assert wheel.seal(WATM_RELEASE="1.7", **release) == first
    second = wheel.seal(WATM_RELEASE="1.8", **release)
    assert second != first
    # From a development root to a release and back, each has its own seal.
    development = wheel.seal()
    assert development not in (first, second)


def water(filling: bytes) -> bytes:
    """Returns `plain` with a custom section."""
    return (ROOT / "watm/target/modules/plain.watm1.wasm").read_bytes() + module(filling)[8:]
