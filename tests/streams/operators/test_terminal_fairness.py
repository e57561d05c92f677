"""``async for`` and ``await`` over a synchronous stream let others run, whatever stages it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Outcome, Sinks, schedulers

PATIENCE = 60.0


def endless(stop: asyncio.Event) -> Flux[int]:
    """Numbers until somebody else, on the same loop, sets the event: who does not let others run, hangs."""

    def numbers() -> Any:
        n = 0
        while not stop.is_set():
            yield n
            n += 1

    return Flux.from_iterable(numbers())


def never(_: Any) -> bool:
    return False


STAGES: dict[str, Callable[[Flux[int]], Flux[Any]]] = {
    "filter": lambda flux: flux.filter(never),
    "do_finally": lambda flux: flux.do_finally(lambda outcome: None).filter(never),
    "limit_rate": lambda flux: flux.limit_rate(64).filter(never),
    "concat_with": lambda flux: flux.concat_with(Flux.just(1)).filter(never),
    "retry": lambda flux: flux.retry(1).filter(never),
    "on_error_resume": lambda flux: flux.on_error_resume(lambda _: Flux.empty()).filter(never),
    "flat_map": lambda flux: flux.flat_map(lambda n: Flux.just(n)).filter(never),
    "flat_map of the whole": lambda flux: Flux.just(1).flat_map(lambda _: flux).filter(never),
    "concat_map": lambda flux: flux.concat_map(lambda n: Flux.just(n)).filter(never),
    "merge": lambda flux: Flux.merge(flux, Flux.empty()).filter(never),
    "share": lambda flux: flux.share().filter(never),
    "timeout": lambda flux: flux.timeout(PATIENCE).filter(never),
    "count": lambda flux: flux.count().flux(),
    "ignore_elements": lambda flux: flux.ignore_elements().flux(),
    "buffer": lambda flux: flux.do_finally(lambda outcome: None).buffer(10**9).take(0),
    "flat_map_iterable": lambda flux: flux.limit_rate(9).flat_map_iterable(lambda n: ()),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", ["async for", "await"])
def test_others_run_while_a_stream_drops_everything(stage: str, way: str) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        stream = STAGES[stage](endless(stop))

        async def read() -> None:
            if way == "await":
                await stream.count()
            else:
                async for _ in stream:
                    pass

        reader = asyncio.ensure_future(read())
        for _ in range(20):
            await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(reader, PATIENCE)

    asyncio.run(main())


def test_asyncio_timeout_interrupts_a_stream_that_would_never_end() -> None:
    outcomes: list[Outcome] = []

    async def main() -> None:
        numbers = endless(asyncio.Event()).do_finally(outcomes.append)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await numbers.concat_with(Flux.just(1)).count()

    asyncio.run(main())
    assert outcomes == [Outcome.CANCEL]


def test_a_repetition_of_nothing_lets_others_run() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Flux.empty().repeat().count()

    asyncio.run(main())


def test_every_element_arrives_in_order_although_the_source_rests() -> None:
    async def main() -> None:
        chain = (
            Flux.range(30_000)
            .do_finally(lambda outcome: None)
            .filter(lambda n: n % 7 == 0)
            .limit_rate(50)
            .flat_map_iterable(lambda n: (n, -n))
            .take(5000)
        )
        expected = [m for n in range(0, 30_000, 7) for m in (n, -n)][:5000]
        assert [n async for n in chain] == expected
        assert await chain.collect_list() == expected

    asyncio.run(main())


def test_a_source_on_a_pool_does_not_rest_for_the_loop() -> None:
    async def main() -> None:
        numbers = Flux.range(200_000).do_finally(lambda o: None).subscribe_on(schedulers.shared_pool())
        assert await numbers.filter(lambda n: n % 2 == 0).count() == 100_000

    asyncio.run(main())


def test_cancelling_a_source_that_rests_closes_it() -> None:
    closed: list[int] = []

    def numbers() -> Any:
        try:
            while True:
                yield 1
        finally:
            closed.append(1)

    async def main() -> None:
        count = Flux.from_iterable(numbers()).limit_rate(2).filter(never).count()
        task = asyncio.ensure_future(_await(count))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert closed == [1]

    asyncio.run(main())


async def _await(mono: Any) -> Any:
    return await mono


def test_a_sink_that_is_written_by_its_reader_is_read_on() -> None:
    async def main() -> None:
        sink: Any = Sinks.unicast()
        sink.try_emit(0)
        seen = []
        async for n in sink.flux().do_finally(lambda outcome: None):
            seen.append(n)
            if n == 5:
                break
            sink.try_emit(n + 1)
        assert seen == [0, 1, 2, 3, 4, 5]

    asyncio.run(main())
