"""`watm listen --forward` with datagrams and several addresses, and the end of it and of `watm dial`."""

import contextlib
import pathlib
import re
import socket
import subprocess

import pytest

from watm_test_support.repository import MODULES, WATM
from watm_test_support.watm_serve import HOST, LIMIT

from .behind import echo
from .programs import wait_for
from .test_datagrams import datagrams, header

MODULE = MODULES / "proxy-protocol.wasm"


def test_datagrams_and_connections_are_forwarded_together(start, tmp_path: pathlib.Path):
    (tmp_path / "proxy.conf").write_text(f'from = "{HOST}"')
    with echo() as port, datagrams(HOST, port) as upstream, datagrams(HOST) as near:
        addresses = [f"tcp://{HOST}:0", f"udp://{HOST}:0"]
        options = ["--config", "proxy.conf", "--forward", f"tcp://{HOST}:{port}", "--watch"]
        program = start("listen", WATM, "listen", "--unsealed", MODULE, *addresses, *options)
        log = tmp_path / "listen.log"
        wait_for(lambda: log.read_text().count("listening on ") == 2, log.read_text)
        at = [int(found) for found in re.findall(r"^listening on .*:(\d+)$", log.read_text(), re.MULTILINE)]
        assert f"listening on udp://{HOST}:{at[1]}\n" in log.read_text()
        for client in (5001, 5002):
            near.sendto(header(HOST, client) + b"hello %d" % client, (HOST, at[1]))
            heard, far = upstream.recvfrom(100)
            assert heard == b"hello %d" % client
            upstream.sendto(b"answer %d" % client, far)
            assert near.recv(100) == b"answer %d" % client
        with socket.create_connection((HOST, at[0]), LIMIT) as stream:
            stream.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 5555 443\r\nhello")
            assert stream.recv(5) == b"hello"
        program.terminate()
        assert program.wait(LIMIT) == 0


@pytest.mark.parametrize("command", ["listen", "dial"])
@pytest.mark.parametrize("hurried", [False, True])
def test_what_is_open_ends_by_itself_unless_it_is_hurried(command, hurried, start, tmp_path: pathlib.Path):
    with echo() as port:
        ends = {
            "listen": (f"{HOST}:0", "--forward", f"{HOST}:{port}"),
            "dial": (f"{HOST}:{port}", "--listen", f"{HOST}:0"),
        }
        options = (*ends[command], "--drain-timeout", str(10 * LIMIT))
        program = start(command, WATM, command, "--unsealed", MODULES / "plain.wasm", *options)
        log = tmp_path / f"{command}.log"
        wait_for(lambda: "listening on " in log.read_text(), log.read_text)
        at = int(re.search(r"^listening on .*:(\d+)$", log.read_text(), re.MULTILINE)[1])
        with socket.create_connection((HOST, at), LIMIT) as stream:
            stream.sendall(b"before")
            assert stream.recv(6) == b"before"
            program.terminate()
            wait_for(lambda: refuses(at), log.read_text)
            stream.sendall(b"after")
            assert stream.recv(5) == b"after"
            if hurried:
                program.terminate()
                with contextlib.suppress(ConnectionResetError):
                    assert stream.recv(1) == b""
            else:
                stream.shutdown(socket.SHUT_WR)
                assert stream.recv(1) == b""
        assert program.wait(LIMIT) == 0


def test_a_water_module_drains_each_time(start, tmp_path: pathlib.Path):
    """Runs many at once, because the result depends on which of two threads gets the signal first."""
    with echo() as port, contextlib.ExitStack() as stack:
        programs = []
        for number in range(30):
            name = f"listen-{number}"
            options = ("--forward", f"{HOST}:{port}", "--drain-timeout", str(10 * LIMIT))
            program = start(name, WATM, "listen", "--unsealed", MODULES / "plain.watm1.wasm", f"{HOST}:0", *options)
            programs.append((program, tmp_path / f"{name}.log"))
        streams = []
        for _, log in programs:
            wait_for(lambda log=log: "listening on " in log.read_text(), log.read_text)
            at = int(re.search(r"^listening on .*:(\d+)$", log.read_text(), re.MULTILINE)[1])
            stream = stack.enter_context(socket.create_connection((HOST, at), LIMIT))
            stream.sendall(b"before")
            assert stream.recv(6) == b"before"
            streams.append((stream, at))
        for program, _ in programs:
            program.terminate()
        for (program, log), (stream, at) in zip(programs, streams, strict=True):
            wait_for(lambda at=at: refuses(at), log.read_text)
            stream.sendall(b"after")
            assert stream.recv(5) == b"after", log.read_text()
            stream.close()
            assert program.wait(LIMIT) == 0, log.read_text()


def refuses(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), LIMIT).close()
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([f"udp://{HOST}:0"], "pass --forward; without it, only one TCP address is supported"),
        ([f"sctp://{HOST}:0"], '"sctp" must be tcp or udp'),
        (
            [f"udp://{HOST}:0", "--forward", f"{HOST}:1", "--update", "elsewhere.wasm"],
            "--update: supported for one TCP address only",
        ),
    ],
)
def test_what_is_not_for_datagrams_is_refused(arguments, reason):
    command = [WATM, "listen", "--unsealed", MODULE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2
    assert reason in done.stderr
