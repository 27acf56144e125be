"""Checks that every block on the pages is run, parsed by its program, or listed with a reason."""

import asyncio
import base64
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.repository import MODULES, WATM

from .listed import NOT_RUN, PARSED, PROGRAMS, TESTED
from .pages import FILES, ROOT, Block, all_blocks, blocks, blocks_of, commands, lines_of, prose, text

HERE = Path(__file__).parent
LIMIT = 60

PROMPTS = ("$ ", ": ")
LANGUAGES = {"console", "text", "python", "rust", *PARSED}
# The beginning of a command, after a prompt or without one.
PROGRAM = re.compile(r"\s*(\$|: |(sudo )?(watm|make|cargo|pip|curl|mitm(web|dump|proxy)(-watm)?) )")


def begin_of(command: str) -> str | None:
    """Returns the longest beginning in the tables that matches a command."""
    return max((begin for begin in TESTED | NOT_RUN if command.startswith(begin)), key=len, default=None)


def names_of_tests() -> set[str]:
    """Returns the names of the tests in this folder."""
    return {name for file in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)}


def faults(block: Block) -> list[str]:
    """Returns the lines of a block that are of no known kind."""
    if block.language not in LANGUAGES:
        return [f"the language is not one of {', '.join(sorted(LANGUAGES))}"]
    lines = lines_of(block.text)
    if block.language == "console":
        return [line for line in lines if not line.startswith(PROMPTS)]
    if block.language == "text":
        return [line for line in lines if PROGRAM.match(line)]
    return []


@pytest.mark.parametrize("command", commands())
def test_a_command_is_run_or_it_is_said_why_not(command):
    begin = begin_of(command)
    assert begin, f"the pages show {command!r}, which no test runs; add it to {HERE.name}/listed.py"
    assert begin in NOT_RUN or TESTED[begin] in names_of_tests(), f"{TESTED[begin]} is not here"


@pytest.mark.parametrize("block", all_blocks(), ids=str)
def test_a_block_is_of_a_kind_that_is_looked_at(block):
    assert not faults(block)


def test_programs_are_run():
    for program in blocks("python"):
        tests = [test for mark, test in PROGRAMS.items() if mark in program]
        assert tests and set(tests) <= names_of_tests(), program


def test_configurations_are_parsed():
    assert set(PARSED.values()) <= names_of_tests()
    assert {block.language for block in all_blocks()} >= PARSED.keys(), "a kind that no page has"


def test_the_tables_have_nothing_that_is_not_shown():
    assert not TESTED.keys() & NOT_RUN.keys()
    used = {begin_of(command) for command in commands()}
    assert not [begin for begin in TESTED | NOT_RUN if begin not in used]
    for reason in NOT_RUN.values():
        for path in re.findall(r"(?:tests|host-python|runtime)/[\w/.-]*\w", reason):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_code_is_in_fences(file):
    """Checks for commands in the text, which no other test sees."""
    indented = re.findall(r"^\n    \S.*$", prose(file.read_text()), re.MULTILINE)
    assert not indented
    assert file.read_text().count("```") % 2 == 0


@pytest.mark.parametrize(
    "wrong",
    ["```console\nwatm dial\n```\n", "```text\n$ watm dial\n```\n", "```text\nwatm dial x\n```\n", "```\nx\n```\n", "```sh\nls\n```\n"],
)
def test_a_block_that_nobody_looks_at_is_found(wrong):
    [block] = blocks_of("page", wrong)
    assert faults(block)


def test_a_command_that_nobody_runs_is_found():
    assert begin_of("watm unknown") is None


# This includes commands that are not run.


@cache
def options_of(subcommand: str) -> set[str]:
    """Returns the long options of a command of `watm`."""
    shown = subprocess.run([WATM, *subcommand.split(), "--help"], check=True, capture_output=True, text=True, timeout=LIMIT)
    return set(re.findall(r"--[a-z][a-z-]*", shown.stdout))


@pytest.mark.parametrize("command", [c for c in commands() if "watm " in c and not c.startswith((":", "make", "mitm"))])
def test_the_options_of_a_command_are_there(command):
    for part in re.findall(r"\bwatm ((?:root )?[a-z]+) ([^|&]*)", command):
        shown = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", part[1]))
        assert shown <= options_of(part[0]), shown - options_of(part[0])


def test_the_commands_and_options_of_mitmproxy_are_there():
    package = ROOT / "host-python" / "python" / "mitmproxy_watm"
    source = "".join(file.read_text() for file in package.rglob("*.py"))
    there = set(re.findall(r'command\("(watm[\w.]*)"\)', source))
    shown = {command.split()[1] for command in commands() if command.startswith(": ")}
    assert shown and shown <= there
    assert {command for command in there if f"`{command}" not in text() and command not in shown} == set()
    options = set(re.findall(r'add_option\(\s*"(\w+)"', source))
    assert set(re.findall(r"--set \"?(watm\w*)=", text())) <= options
    assert {option for option in options if f"`{option}`" not in text()} == set()


def test_every_command_of_the_program_is_on_a_page():
    shown = subprocess.run([WATM, "--help"], check=True, capture_output=True, text=True, timeout=LIMIT).stdout
    listed = re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2].partition("Options:")[0], re.MULTILINE)
    assert len(listed) > 15
    assert [name for name in listed if name != "help" and not re.search(rf"\bwatm {name}\b|--plugin watm", text())] == []


def test_every_metric_of_the_table_is_in_the_code():
    sources = "".join(file.read_text() for file in (ROOT / "runtime").rglob("*.rs"))
    names = set(re.findall(r"`(watm_[a-z_]+[a-z])`", section("operations.md", "Metrics")))
    # Metrics that are made from the names of counters are in no file, and the library adds the
    # suffix of a counter.
    made = {"watm_module_streams_failed_total", "watm_host_guest_time_seconds_total"}
    written = {name: name.removeprefix("watm_").removesuffix("_total") for name in names - made}
    assert len(written) > 10 and [name for name, part in written.items() if part not in sources] == []


def test_every_code_of_a_refusal_is_explained():
    sources = "".join(file.read_text() for file in (ROOT / "runtime" / "seal").rglob("*.rs"))
    codes = set(re.findall(r'Refused::\w+(?: \{ \.\. \})? => "([a-z-]+)"', sources))
    assert len(codes) > 15 and codes == fields_of_page("troubleshooting.md", "Seals")


def test_every_target_of_make_that_is_mentioned_is_there():
    made = (ROOT / "Makefile").read_text() + (ROOT / "packaging" / "dist.mk").read_text()
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", made, re.MULTILINE))
    mentioned = set(re.findall(r"(?:`|^\$ )make ([a-z][\w-]*)", text(), re.MULTILINE))
    assert len(mentioned) > 10 and mentioned <= targets, mentioned - targets


# Configurations, each parsed by its program.


def test_programs_in_rust_are_compiled_somewhere():
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True, timeout=LIMIT).stdout.split()
    sources = [(ROOT / name).read_text() for name in names if (ROOT / name).exists()]
    compiled = ["\n".join(re.sub(r"^\s*//! ?", "", line) for line in source.splitlines()) for source in sources]
    for block in blocks("rust"):
        assert any(block in source for source in compiled), block


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> dict[str, str]:
    """Returns a key and a self-signed certificate, in PEM."""
    folder = tmp_path_factory.mktemp("certificate")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=example.com"]
    made = ["openssl", "req", "-x509", *new, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True, timeout=LIMIT)
    return {name: (folder / f"{name}.pem").read_text() for name in ("key", "cert")}


def filled(block: str, certificate: dict[str, str]) -> str:
    """Returns a configuration with valid values in place of placeholders."""
    block = re.sub(r"PublicKey = <base64>", lambda _: f"PublicKey = {pubkey(genkey())}", block)
    block = re.sub(r"<base64>", lambda _: genkey(), block)
    block = re.sub(r"<16 (other )?bytes in base64>", lambda _: base64.b64encode(os.urandom(16)).decode(), block)
    block = block.replace('"key": "<PEM>"', f'"key": {json.dumps(certificate["key"])}')
    return block.replace('"<PEM>"', json.dumps(certificate["cert"]))


async def refusal(module: str, config: str) -> str | None:
    """Returns the error of a module for a configuration."""
    try:
        server = await mitmproxy_watm.start_server(module, "127.0.0.1", 0, config=config)
    except ValueError as e:
        return str(e)
    server.close()
    await server.wait_closed()
    return None


OF_MODULES = [block for block in all_blocks() if PARSED.get(block.language) == "test_a_configuration_of_a_module_is_accepted"]


@pytest.mark.parametrize("block", OF_MODULES, ids=str)
def test_a_configuration_of_a_module_is_accepted(block, certificate):
    language, _, module = block.language.partition(",")
    config = filled(block.text, certificate)
    assert asyncio.run(refusal(module, config)) is None
    unknown = config.replace("{", '{"no-such-field": 1,', 1) if language == "json" else f'no-such-field = "1"\n{config}'
    assert asyncio.run(refusal(module, unknown)) is not None


def check(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    """Runs `watm serve --check` with the modules that the configuration names."""
    for module in re.findall(r'^module = "(.*)"', config, re.MULTILINE):
        if not (folder / module).exists():
            (folder / module).symlink_to(MODULES / module)
    (folder / "watm.toml").write_text(config)
    command = [WATM, "serve", "--unsealed", "--check", "watm.toml"]
    return subprocess.run(command, cwd=folder, env={"HOME": str(folder)}, capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("config", blocks("toml,serve"))
def test_a_configuration_of_serve_is_accepted(config, tmp_path):
    done = check(tmp_path, config)
    assert done.returncode == 0, done.stderr
    done = check(tmp_path, config.replace("[[listener]]", "[[listener]]\nidle-time = 1", 1))
    assert done.returncode == 2 and "idle-time" in done.stderr, done.stderr


def grants(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that reads grants."""
    (folder / "grants.toml").write_text(config)
    command = [WATM, "inspect", "--grants", "grants.toml", MODULES / "plain.wasm"]
    return subprocess.run(command, cwd=folder, env={"HOME": str(folder)}, capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("config", blocks("toml,grants"))
def test_grants_are_accepted(config, tmp_path):
    done = grants(tmp_path, config)
    assert done.returncode == 0, done.stderr
    assert grants(tmp_path, config + "memory = 1\n").returncode == 2


# The tables of fields, compared with those of the parsers.


def section(page: str, heading: str) -> str:
    """Returns the section of a page below a heading."""
    content = (ROOT / "docs" / "src" / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", content, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def fields_of_page(page: str, heading: str) -> set[str]:
    """Returns the names in the first columns of a section's tables."""
    rows = re.findall(r"^\| (`.*?) \|", section(page, heading), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def fields_of_error(error: str) -> set[str]:
    """Returns the fields that an error for an unknown field lists."""
    quoted = re.findall(r"`([\w-]+)`", error)
    if quoted:
        return set(quoted[1:])
    return set(re.findall(r"[\w-]+", re.split(r"expected one of |available: |has ", error)[-1]))


UNKNOWN = {
    ("wireguard.md", "`[Interface]`"): ("wireguard", "[Interface]\nUnknown = 1\n"),
    ("wireguard.md", "`[Peer]`"): ("wireguard", "[Peer]\nUnknown = 1\n"),
    ("wireguard.md", "`[Watm]`"): ("wireguard", "[Watm]\nUnknown = 1\n"),
    ("networks.md", "Words"): (
        "wireguard",
        "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n[Watm]\nNetwork = unknown=1\n",
    ),
    ("wireguard.md", "mitmproxy's `wireguard.conf`"): ("wireguard", '{"unknown": 1}'),
    ("shadowsocks.md", "Configuration"): ("shadowsocks", '{"unknown": 1}'),
    ("shadowsocks.md", "`users`"): (
        "shadowsocks",
        '{"method": "2022-blake3-aes-128-gcm", "password": "x", "users": [{"unknown": 1}]}',
    ),
    ("socks5.md", "Configuration"): ("socks5", '{"unknown": 1}'),
    ("socks5.md", "`users`"): ("socks5", '{"users": [{"unknown": 1}]}'),
    ("proxy-protocol.md", "Configuration"): ("proxy-protocol", "unknown = 1\n"),
    ("plain.md", "Configuration"): ("plain", "unknown = 1\n"),
    ("reverse.md", "Configuration"): ("reverse", "unknown = 1\n"),
    ("tls.md", "Configuration"): ("tls", '{"unknown": 1}'),
    ("tls.md", "`certificates`"): ("tls", '{"certificates": [{"unknown": 1}]}'),
    ("tls.md", "`clients`"): ("tls", '{"clients": {"unknown": 1}}'),
    ("tls.md", "`limits`"): ("tls", '{"limits": {"unknown": 1}}'),
    ("tls.md", "`proxy-out`"): ("tls", '{"proxy-out": {"unknown": 1}}'),
    ("tls.md", "`server`"): ("tls", '{"server": {"unknown": 1}}'),
}
"""Sections with tables of fields, and configurations whose errors list the fields."""


@pytest.mark.parametrize("place", UNKNOWN, ids=" ".join)
def test_a_table_has_the_fields_that_the_module_has(place):
    error = asyncio.run(refusal(*UNKNOWN[place]))
    assert error is not None
    assert fields_of_page(*place) == fields_of_error(error), error


TABLES_OF_SERVE = {
    "`[[listener]]`": "[[listener]]",
    "`transparent`": "[[listener]]\n[listener.transparent]",
    "`[limits]`": "[limits]",
    "`[metrics]`": "[metrics]",
    "`[logs]`": "[logs]",
    "`[drain]`": "[drain]",
}


@pytest.mark.parametrize("heading", TABLES_OF_SERVE)
def test_a_table_has_the_fields_that_serve_has(heading, tmp_path):
    done = check(tmp_path, f"{TABLES_OF_SERVE[heading]}\nunknown = 1\n")
    assert fields_of_page("serve.md", heading) == fields_of_error(done.stderr), done.stderr


def test_the_table_of_grants_has_their_fields(tmp_path):
    done = grants(tmp_path, "[a]\nunknown = 1\n")
    assert fields_of_page("grants.md", "grants.toml") == fields_of_error(done.stderr), done.stderr
