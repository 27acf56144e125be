"""WebSockets whose server pushes: `python pushes.py serve`, and `python pushes.py watch HOST PORT COUNT`.

The server prints its port and serves until it is terminated. The client opens COUNT connections. It prints the numbers
of received and sent messages of each as a line of JSON.
"""

import asyncio
import json
import random
import sys
from collections.abc import Iterator

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage

BURSTS = 80
# Seconds without data after which the client fails. The longest pause is well below a second.
SILENCE = 15


def bursts(seed: int) -> Iterator[tuple[list[int], float]]:
    """Yields bursts: the sizes of one to five messages, and the seconds until the next burst."""
    chance = random.Random(seed)
    for _ in range(BURSTS):
        yield [chance.randint(20, 400) for _ in range(chance.randint(1, 5))], chance.uniform(0.01, 0.06)


async def serve() -> None:
    seeds = iter(range(1 << 30))

    async def push(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        await event(connection, reader, Request)
        writer.write(connection.send(AcceptConnection()))
        count = 0
        for sizes, pause in bursts(next(seeds)):
            for size in sizes:
                writer.write(connection.send(TextMessage(f"{count} ".ljust(size, "x"))))
                count += 1
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write(connection.send(TextMessage(f"all {count}")))
        writer.write(connection.send(CloseConnection(1000)))
        await event(connection, reader, CloseConnection)
        writer.close()

    server = await asyncio.start_server(push, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def event(connection: WSConnection, reader: asyncio.StreamReader, kind: type) -> None:
    """Reads until an event of this kind arrives."""
    while True:
        connection.receive_data(await reader.read(65536) or None)
        if any(isinstance(found, kind) for found in connection.events()):
            return


async def watch(host: str, port: int, count: int) -> None:
    print(json.dumps(await asyncio.gather(*(messages(host, port) for _ in range(count)))))


async def messages(host: str, port: int) -> dict[str, int | None]:
    """Returns the number of messages that arrived in order, and the total, which the last message contains."""
    came, sent, text = 0, None, ""
    try:
        async with asyncio.timeout(SILENCE):
            reader, writer = await asyncio.open_connection(host, port)
        connection = WSConnection(ConnectionType.CLIENT)
        writer.write(connection.send(Request(host=host, target="/")))
        while sent is None:
            async with asyncio.timeout(SILENCE):
                data = await reader.read(65536)
            connection.receive_data(data or None)
            for found in connection.events():
                match found:
                    case TextMessage(data=part, message_finished=False):
                        text += part
                    case TextMessage(data=part) if (text + part).startswith("all "):
                        sent = int((text + part).split()[1])
                    case TextMessage(data=part):
                        assert int((text + part).split()[0]) == came, f"{text + part} after {came} messages"
                        came, text = came + 1, ""
                    case Ping():
                        writer.write(connection.send(found.response()))
                    case CloseConnection() if sent is None:
                        return {"came": came, "sent": sent}
        writer.write(connection.send(CloseConnection(1000)))
        writer.close()
    except TimeoutError:
        pass
    return {"came": came, "sent": sent}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        asyncio.run(watch(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
