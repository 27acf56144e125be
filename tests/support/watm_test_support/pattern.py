"""The content of every transfer, the same as in tests/wgclient/pattern."""

PERIOD = 65521  # prime: no packet or buffer size divides it
_MASK = (1 << 64) - 1


def _block() -> bytes:
    block = bytearray()
    state = 0x9E3779B97F4A7C15  # xorshift64*
    while len(block) < PERIOD:
        state ^= state >> 12
        state = (state ^ (state << 25)) & _MASK
        state ^= state >> 27
        block += ((state * 0x2545F4914F6CDD1D) & _MASK).to_bytes(8, "little")
    return bytes(block[:PERIOD])


# Three periods: any piece of up to two of them, at any phase, is one slice.
_REPEATED = _block() * 3

LONGEST_PIECE = 2 * PERIOD


def piece(offset: int, size: int) -> bytes:
    """Returns `size` bytes of the content from `offset` on, at most `LONGEST_PIECE`."""
    start = offset % PERIOD
    return _REPEATED[start : start + min(size, LONGEST_PIECE)]


def matches(data: bytes, offset: int) -> bool:
    """Returns True if `data` is the content at `offset`."""
    while data:
        expected = piece(offset, len(data))
        if data[: len(expected)] != expected:
            return False
        data = data[len(expected) :]
        offset += len(expected)
    return True
