"""`make swap-load`: a download, a shell, fifty requests a second and a UDP echo through ten swaps."""

import argparse
import asyncio
import sys
from pathlib import Path

from tests.swap.run import run
from watm_test_support.repository import ROOT


def main() -> int:
    """Runs the load. The exit status is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.swap", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--module", type=Path, default=ROOT / "watm/target/modules/wireguard.wasm")
    arguments = parser.parse_args()
    result = asyncio.run(
        run(
            arguments.seconds,
            arguments.swaps,
            arguments.module.read_bytes(),
            said=lambda text: print(text, flush=True),
        )
    )
    for name, part in result.parts.items():
        lost = f", {part.lost} lost" if part.lost else ""
        print(f"{name}: {part.done} done{lost}, longest stall {part.stall * 1000:.0f} ms")
    print(f"{result.swaps} swaps; {result.left} older generations at the end")
    for error in result.errors:
        print(f"error: {error}")
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
