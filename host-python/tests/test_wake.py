"""The waits of tasks for native threads."""

import asyncio
from collections.abc import Iterator

import pytest

from mitmproxy_watm._wake import LoopWake

# No signal has these keys, so only the tests make them ready.
ONE, OTHER = 1 << 60, 1 << 61


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def ready(wake: LoopWake, *keys: int) -> None:
    """Makes keys ready as the event loop finds them: together, outside of any task."""
    wake._ready.extend(keys)
    asyncio.get_running_loop().call_soon(wake._deliver_batch)


async def wait(wake: LoopWake, key: int) -> None:
    await wake.wait(key)


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_task_continues_inside_the_delivery(loop):
    wake = LoopWake.of(loop)
    order = []

    async def waits() -> None:
        await wake.wait(ONE)
        order.append("task")

    def deliver() -> None:
        wake._ready.append(ONE)
        wake._deliver_batch()
        order.append("delivered")

    async def main() -> None:
        task = asyncio.create_task(waits())
        await rounds(2)
        loop.call_soon(deliver)
        await task

    loop.run_until_complete(main())
    assert order == ["task", "delivered"]


def test_all_that_wait_for_a_key_continue(loop):
    wake = LoopWake.of(loop)

    async def main() -> None:
        tasks = [asyncio.create_task(wait(wake, key)) for key in (ONE, ONE, OTHER)]
        await rounds(2)
        ready(wake, ONE)
        await rounds(2)
        assert [task.done() for task in tasks] == [True, True, False]
        ready(wake, OTHER)
        await asyncio.gather(*tasks)
        assert not wake._waiters

    loop.run_until_complete(main())


def test_a_cancelled_wait_ends_no_other(loop):
    wake = LoopWake.of(loop)

    async def main() -> None:
        for cancelled in range(3):
            tasks = [asyncio.create_task(wait(wake, ONE)) for _ in range(3)]
            await rounds(2)
            assert tasks[cancelled].cancel()
            await rounds(2)
            assert [task.done() for task in tasks] == [number == cancelled for number in range(3)]
            ready(wake, ONE)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [result is None for result in results] == [number != cancelled for number in range(3)]
            assert not wake._waiters

    loop.run_until_complete(main())


def test_a_key_that_is_ready_after_the_cancellation_changes_nothing(loop):
    wake = LoopWake.of(loop)

    async def main() -> None:
        task = asyncio.create_task(wait(wake, ONE))
        await rounds(2)
        ready(wake, ONE)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not wake._waiters

    loop.run_until_complete(main())


def test_a_wait_may_have_a_time_limit(loop):
    wake = LoopWake.of(loop)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await wake.wait(ONE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(wake, ONE), 0.01)
        assert not wake._waiters

    loop.run_until_complete(main())


def test_a_task_may_wake_another(loop):
    wake = LoopWake.of(loop)

    async def main() -> None:
        task = asyncio.create_task(wait(wake, ONE))
        await rounds(2)
        # Not at once: no task can continue while another runs.
        wake.wake(ONE)
        assert not task.done()
        await task

    loop.run_until_complete(main())


def test_an_interrupt_in_a_task_delays_no_other(loop):
    wake = LoopWake.of(loop)
    continued = []

    async def interrupted() -> None:
        await wake.wait(ONE)
        raise KeyboardInterrupt

    async def other() -> None:
        await wake.wait(OTHER)
        continued.append(OTHER)

    async def main() -> None:
        tasks.extend(asyncio.create_task(task()) for task in (interrupted, other))
        await rounds(2)
        ready(wake, ONE, OTHER)
        await asyncio.sleep(60)

    tasks: list[asyncio.Task] = []
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    assert not continued
    loop.run_until_complete(asyncio.wait_for(tasks[1], 10))
    assert continued == [OTHER]
    with pytest.raises(KeyboardInterrupt):
        tasks[0].result()
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))


def test_another_loop_cannot_wait(loop):
    wake = LoopWake.of(loop)
    with pytest.raises(RuntimeError, match="different loop"):
        asyncio.run(wait(wake, ONE))
    assert not wake._waiters
