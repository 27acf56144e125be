"""Switches defences off, one after another, and says which tests of SECURITY.md do not notice: see README.md.

`python tests/prove/defences.py [NAME…]` takes some of `defences.toml`, and without a name all of them. `--list` names
another list of this form.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "prove" / "defences.toml"
MADE = ROOT / "build" / "prove" / "defences"
TREE = MADE / "tree"
PYTHON = MADE / "python"
# The variable that names the defence that is off, in the copy.
VARIABLE = "WATM_WITHOUT"
# How a switch reads it. A module of WebAssembly has no environment, so that it is built for each of its defences.
_AT_RUN_TIME = 'std::env::var_os("{variable}").is_some_and(|name| name == "{name}")'
_IN_MODULES = '(cfg!(not(target_family = "wasm")) && {run_time} || matches!(option_env!("{variable}"), Some("{name}")))'
CHECKS = {
    ("runtime", ".rs"): _AT_RUN_TIME,
    ("watm", ".rs"): _IN_MODULES.replace("{run_time}", _AT_RUN_TIME),
    ("host-python", ".py"): '(__import__("os").environ.get("{variable}") == "{name}")',
}
# The tests of the Python package, and the modules that they have from it, which are sealed.
OF_THE_PACKAGE = ("host-python/tests/", "tests/interop/", "tests/shadowsocks/")
PACKAGED = ("shadowsocks", "wireguard")
# The linker arguments of modules, as in the Makefile.
LINKING = {"shadowsocks": ["-Clink-arg=-zstack-size=65536"], "wireguard": []}
# Seconds for a test, for the first run of one, which may build a module of the tests, and for a build.
LIMIT = 60
FIRST_LIMIT = 300
BUILD_LIMIT = 3600
# The most bytes of data of a process. Without its defence a test may take all memory there is.
DATA = 4 << 30
# A test's end in the words of libtest and of pytest.
PASSED = {".rs": r"test result: ok\. 1 passed", ".py": r"^(?!.*(skipped|no tests ran)).*\b\d+ passed"}


class Switch(NamedTuple):
    """A text of a file, which occurs once, and the text that takes its place in the copy."""

    file: str
    find: str
    off: str


class Defence(NamedTuple):
    name: str
    promises: list[str]
    tests: list[str]
    switches: list[Switch]
    # The module to build without the defence.
    module: str | None


class LeftOut(NamedTuple):
    """Tests of a promise that have no defence to switch off. Without tests: all of them."""

    promise: str
    reason: str
    tests: list[str]


def read(path: pathlib.Path = LIST) -> tuple[list[Defence], list[LeftOut]]:
    """The defences, and what has none."""
    lists = tomllib.loads(path.read_text())
    defences = [
        Defence(it["name"], it["promises"], it["tests"], [Switch(**switch) for switch in it["switch"]], it.get("module"))
        for it in lists["defence"]
    ]
    return defences, [LeftOut(it["promise"], it["reason"], it.get("tests", [])) for it in lists.get("left_out", [])]


def switched(text: str, name: str, switch: Switch) -> str:
    """The file's text with the switch in it."""
    assert text.count(switch.find) == 1, f"{switch.file} has this {text.count(switch.find)} times: {switch.find}"
    path = pathlib.Path(switch.file)
    check = CHECKS[path.parts[0], path.suffix].format(variable=VARIABLE, name=name)
    return text.replace(switch.find, re.sub(r"\bOFF\b", lambda _: check, switch.off))


def copy(defences: list[Defence]) -> None:
    """Makes the copy with all switches. Files that are the same keep their times, so that what was built is kept."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout.decode().split("\0")
    links = {name for name in listed if name and (ROOT / name).is_symlink()}
    files = {name for name in listed if name and (ROOT / name).is_file()} - links
    for old in [path for path in TREE.rglob("*") if path.is_file() and not under_link(path)]:
        if str(old.relative_to(TREE)) not in files:
            old.unlink()
    texts = {}
    for defence in defences:
        for switch in defence.switches:
            text = texts.get(switch.file) or (ROOT / switch.file).read_text()
            texts[switch.file] = switched(text, defence.name, switch)
    for name in links:
        link((ROOT / name).readlink(), TREE / name)
    for name in files:
        source, target = ROOT / name, TREE / name
        content = texts[name].encode() if name in texts else source.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(source, target)


def under_link(path: pathlib.Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents)


def link(target: pathlib.Path, to: pathlib.Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    to.symlink_to(target)


def cargo(command: list[str], folder: pathlib.Path, target: pathlib.Path, **environment: str) -> list[dict]:
    """Builds. Returns cargo's messages about its artifacts."""
    command = ["cargo", command[0], "--locked", "--message-format=json-render-diagnostics", *command[1:]]
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
    variables |= {"CARGO_TARGET_DIR": str(target), "PYO3_BUILD_EXTENSION_MODULE": "1"} | environment
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, env=variables, timeout=BUILD_LIMIT)
    messages = map(json.loads, done.stdout.splitlines())
    return [message for message in messages if message["reason"] == "compiler-artifact"]


Programs = dict[tuple[str, str], str]


def programs(messages: list[dict]) -> Programs:
    """The programs of tests, by the folder of their package and their name."""
    found = {}
    for message in messages:
        package = pathlib.Path(message["manifest_path"]).parent
        if message["executable"] and message["profile"]["test"] and package.is_relative_to(TREE):
            found[str(package.relative_to(TREE)), message["target"]["name"]] = message["executable"]
    return found


class Workshop:
    """The copy, and what is built from it."""

    def __init__(self, tests: set[str], target: pathlib.Path, watm: pathlib.Path) -> None:
        self._target, self._watm = target, watm
        link(ROOT / "build", TREE / "build")
        link(target, TREE / "target")
        self.programs: Programs = {}
        if any(not test.startswith("watm/") for test in tests):
            # With the program `watm`, which those of its crate run.
            self.programs |= programs(cargo(["test", "--no-run", "--release", "--workspace", "--test", "it"], TREE, target))
        if any(test.startswith("watm/") for test in tests):
            command = ["test", "--no-run", "--package", "watm-netstack", "--tests"]
            self.programs |= programs(cargo(command, TREE / "watm", watm))
        self._has_package = any(test.startswith(OF_THE_PACKAGE) for test in tests)
        if self._has_package:
            sealer = ["--bin", "watm-seal-packaged"]
            libraries = cargo(["build", "--release", "--workspace", "--lib", *sealer], TREE, target)
            self._make_package(next(it for it in libraries if it["target"]["name"] == "_native")["filenames"])
        self.place()

    def _make_package(self, built: list[str]) -> None:
        """Makes the Python package of the copy, beside what is installed."""
        shutil.rmtree(PYTHON, ignore_errors=True)
        shutil.copytree(TREE / "host-python" / "python" / "mitmproxy_watm", PYTHON / "mitmproxy_watm")
        [native] = [name for name in built if name.endswith(".so")]
        link(pathlib.Path(native), PYTHON / "mitmproxy_watm" / "_native.abi3.so")

    def place(self, module: str | None = None, without: str | None = None) -> None:
        """Places the modules where tests look for them, one of them built without a defence."""
        modules = TREE / "watm" / "target" / "modules"
        shutil.rmtree(modules, ignore_errors=True)
        for file in (ROOT / "watm" / "target" / "modules").iterdir():
            link(file, modules / file.name)
        if module is not None:
            (modules / f"{module}.wasm").unlink()
            self._build(module, without, modules / f"{module}.wasm")
        if not self._has_package:
            return
        sealing = [self._target / "release" / "watm-seal-packaged", TREE / "host-python" / "packaging", MADE / "seal"]
        sealed = [f"{name}={modules / name}.wasm" for name in PACKAGED]
        subprocess.run([*sealing, PYTHON / "mitmproxy_watm" / "modules", *sealed], check=True, timeout=LIMIT)

    def _build(self, module: str, without: str, to: pathlib.Path) -> None:
        command = ["rustc", "--release", "--target", "wasm32-wasip1", "--package", f"watm-{module}", "--crate-type", "cdylib", "--"]
        made = cargo([*command, *LINKING[module]], TREE / "watm", self._watm, **{VARIABLE: without})
        [core] = [name for it in made if it["target"]["name"] == f"watm_{module}" for name in it["filenames"] if name.endswith(".wasm")]
        made = cargo(["build", "--package", "watm-componentize"], TREE / "watm", self._watm)
        [componentize] = [it["executable"] for it in made if it["executable"]]
        subprocess.run([componentize, core, to], check=True, timeout=LIMIT)


def command_of(test: str, built: Programs) -> tuple[list[str], pathlib.Path]:
    """The command of a cited test, as `FILE::NAME`, and the folder to run it in."""
    file, _, name = test.partition("::")
    path = pathlib.Path(file)
    if path.suffix == ".py":
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], TREE
    package, within = file.split("/tests/")
    parts = pathlib.Path(within).with_suffix("").parts
    # A folder of tests is one program, and a file is one too.
    program, *modules = [part for part in parts if part != "mod"]
    return [built[package, program], "--exact", "::".join([*modules, name])], TREE / package


def passes(test: str, built: Programs, without: str | None, log: pathlib.Path) -> tuple[bool, str]:
    """Runs a test. Returns true if it passes, and how it ended."""
    command, folder = command_of(test, built)
    environment = os.environ | {
        "CARGO_MANIFEST_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, [PYTHON, TREE / "tests" / "support", TREE])),
    }
    environment.pop(VARIABLE, None)
    if without is not None:
        environment[VARIABLE] = without
    limit = FIRST_LIMIT if without is None else LIMIT
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (DATA, DATA)),
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Children of the test may still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT)
    took = f"{time.monotonic() - began:.1f} s"
    if code is None:
        return False, f"no end within {limit} s"
    text = log.read_text(errors="replace")
    suffix = pathlib.Path(test.partition("::")[0]).suffix
    passed = code == 0 and re.search(PASSED[suffix], text, re.MULTILINE) is not None
    return passed, f"passes, {took}" if passed else f"code {code}, {took}"


def report(defences: list[Defence], workshop: Workshop) -> Iterator[str]:
    """Runs each test with nothing off and with its defence off. Yields those that say nothing."""
    first: dict[str, bool] = {}
    built = workshop.programs
    for test in sorted({test for defence in defences for test in defence.tests}):
        name = test.rpartition("::")[2]
        first[test], how = passes(test, built, None, MADE / "logs" / f"{name}.log")
        print(f"{'passes' if first[test] else 'FAILS '}  {'(nothing off)':26}  {name}: {how}", flush=True)
        if not first[test]:
            yield f"{test} fails with all defences"
    for defence in defences:
        if defence.module is not None:
            workshop.place(defence.module, defence.name)
        for test in filter(first.get, defence.tests):
            name = test.rpartition("::")[2]
            passed, how = passes(test, built, defence.name, MADE / "logs" / f"{defence.name}-{name}.log")
            print(f"{'PASSES' if passed else 'fails '}  {defence.name:26}  {name}: {how}", flush=True)
            if passed:
                yield f"{test} passes without {defence.name}"
        if defence.module is not None:
            workshop.place()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a defence; by default all")
    parser.add_argument("--list", type=pathlib.Path, default=LIST, help="the list of defences")
    parser.add_argument("--target", type=pathlib.Path, default=MADE / "target", help="cargo's folder for the host")
    parser.add_argument("--watm-target", type=pathlib.Path, default=MADE / "watm", help="cargo's folder for the transports")
    parser.add_argument("--build-only", action="store_true", help="run no test")
    arguments = parser.parse_args()
    # A test that runs is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    defences, left_out = read(arguments.list)
    unknown = set(arguments.names) - {defence.name for defence in defences}
    if unknown:
        parser.error(f"no defence {', '.join(sorted(unknown))}; see {arguments.list}")
    chosen = [defence for defence in defences if not arguments.names or defence.name in arguments.names]
    copy(defences)
    workshop = Workshop({test for it in chosen for test in it.tests}, arguments.target.resolve(), arguments.watm_target.resolve())
    if arguments.build_only:
        return 0
    silent = list(report(chosen, workshop))
    promises = {promise for defence in defences for promise in defence.promises}
    print(f"{len(chosen)} defences were switched off, of {len(promises)} promises; {len(left_out)} entries are left out")
    for line in silent:
        print(f"error: {line}; see {MADE}/logs", file=sys.stderr)
    return min(len(silent), 1)


if __name__ == "__main__":
    sys.exit(main())
