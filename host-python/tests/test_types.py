"""The typed stubs and the package against each other."""

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

CONFIG = Path(__file__).resolve().parents[1] / "pyproject.toml"


def check(*arguments: str) -> None:
    result = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_stubs_say_what_the_native_module_is():
    check("mypy.stubtest", "mitmproxy_watm._native", f"--mypy-config-file={CONFIG}")


def test_the_package_is_typed():
    assert resources.files("mitmproxy_watm").joinpath("py.typed").is_file()
    check("mypy", f"--config-file={CONFIG}", "-p", "mitmproxy_watm")


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("await mitmproxy_watm.start_server('wireguard', '', 1, handle_tcp_stream=handle)", True),
        ("await mitmproxy_watm.start_server('wireguard', '', 1, handle_tcp_stream=wrong)", False),
        ("await mitmproxy_watm.start_server('wireguard', '', 1, protocol='udp')", False),
        ("(await stream.read(1)).hex()", True),
        ("stream.write('text')", False),
        ("await wireguard.start_wireguard_server('::', 1, '', [''], handle, handle)", True),
        ("asyncio.create_task(stream.readline())", True),
    ],
)
def test_what_a_type_checker_makes_of_a_program(line, right, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\nimport mitmproxy_watm\nfrom mitmproxy_watm import wireguard\n"
        "async def handle(stream: mitmproxy_watm.Stream) -> None: ...\n"
        "async def wrong(stream: int) -> None: ...\n"
        f"async def main(stream: mitmproxy_watm.Stream) -> None:\n    {line}\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], capture_output=True, text=True, cwd=tmp_path,
        timeout=240,
    )
    assert (result.returncode == 0) == right, result.stdout + result.stderr
