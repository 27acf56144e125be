"""The services, and handlers of a careless application, by the destination's port."""

import asyncio

from watm_test_support import web_services

RAISES, RAISES_LATER, NEVER_READS, CLOSES_EARLY, NEVER_DRAINS, RETURNS = range(4001, 4007)

MB = 1_000_000
# Seconds, longer than any client waits. A handler that never ended would keep its queued data
# forever.
NEVER = 20
# The bytes that a handler writes without waiting for the drain.
UNDRAINED = 8 * MB


async def handle_tcp(stream) -> None:
    if not await _fails(stream):
        await web_services.handle_tcp(stream)


async def handle_udp(stream) -> None:
    if not await _fails(stream):
        await web_services.handle_udp(stream)


async def _fails(stream) -> bool:
    """Makes the fault of a port, if it has one. Returns true if it did."""
    port = stream.get_extra_info("sockname")[1]
    if port == RAISES:
        raise RuntimeError("at once")
    if port == RAISES_LATER:
        await stream.read(10)
        raise RuntimeError("later")
    if port == NEVER_READS:
        await asyncio.sleep(NEVER)
    if port == CLOSES_EARLY:
        await stream.read(10)
        stream.close()
    if port == NEVER_DRAINS:
        for _ in range(UNDRAINED // MB):
            stream.write(bytes(MB))
        stream.close()
    return RAISES <= port <= RETURNS
