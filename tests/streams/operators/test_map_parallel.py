"""``map_parallel``: a function on processes, and everything that can go wrong between them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, WorkerDied, on_dropped
from tests.streams.operators.rigs import Counting, Oops
from tests.streams.recording import Recorder


def square(x: int) -> int:
    return x * x


def fails_at_three(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


def dies_at_three(x: int) -> int:
    if x == 3:
        os._exit(7)
    return x


def process_of(_: Any) -> int:
    return os.getpid()


def nothing(_: Any) -> None:
    return None


def a_lock(_: Any) -> Any:
    return threading.Lock()


def a_megabyte(x: int) -> bytes:
    return bytes([x]) * 1_000_000


class NeedsTwo(Exception):
    """It can be pickled, and not be made again: its arguments are not those of ``args``."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(f"{left} and {right}")


def returns_needs_two(_: Any) -> Any:
    return NeedsTwo("salt", "pepper")


def raises_needs_two(_: Any) -> None:
    raise NeedsTwo("salt", "pepper")


def exits(_: Any) -> None:
    raise SystemExit(3)


def gone() -> bool:
    """Wait until all processes have ended."""
    for process in multiprocessing.active_children():
        process.join(20)
    return not multiprocessing.active_children()


def test_results_come_in_order_from_several_processes() -> None:
    assert Flux.range(50).map_parallel(square, 2).collect_list().block(40) == [x * x for x in range(50)]
    assert gone()


def test_unordered_results_are_all_there() -> None:
    results = Flux.range(50).map_parallel(square, 2, ordered=False).collect_list().block(40)

    assert sorted(results or ()) == [x * x for x in range(50)]


def test_it_runs_in_other_processes() -> None:
    processes = set(Flux.range(20).map_parallel(process_of, 2).collect_list().block(40) or ())

    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2


def test_large_elements_and_results_travel() -> None:
    sizes = Flux.range(6).map_parallel(a_megabyte, 2).map_parallel(len, 1).collect_list().block(40)

    assert sizes == [1_000_000] * 6


def test_no_more_than_two_elements_for_each_process_are_in_the_works() -> None:
    source = Counting(1000)
    seen = Recorder.of(Flux.from_iterable(source).map_parallel(square, 2))
    assert source.taken == 4

    arrived = threading.Event()
    seen.on_element = lambda *_: arrived.set()
    seen.request(1)

    assert arrived.wait(40)
    assert seen.items == [1]
    assert source.taken <= 5
    seen.cancel()
    assert source.closed
    assert gone()


def test_taking_a_few_of_an_endless_stream_ends_the_processes() -> None:
    source = Counting(1 << 40)

    assert Flux.from_iterable(source).map_parallel(square, 2).take(3).collect_list().block(40) == [1, 4, 9]
    assert source.closed
    assert gone()


def test_a_function_that_cannot_be_pickled_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"λ cannot be pickled .* define it with def at the top of a module"):
        Flux.range(3).map_parallel(lambda x: x, 1)


def test_an_element_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="cannot send <lock>, a lock, to another process"):
        Flux.just(threading.Lock()).map_parallel(process_of, 1).block_last(40)


def test_a_result_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="cannot send a result back, <lock>, a lock"):
        Flux.just(1).map_parallel(a_lock, 1).block_last(40)


def test_an_error_of_the_function_comes_back_with_its_traceback() -> None:
    with pytest.raises(ValueError, match="three") as caught:
        Flux.range(10).map_parallel(fails_at_three, 1).block_last(40)

    assert any("in a worker process" in note and "fails_at_three" in note for note in caught.value.__notes__)
    assert gone()


def test_results_before_an_error_are_sent_first() -> None:
    seen = Recorder.of(Flux.range(10).map_parallel(fails_at_three, 2), UNBOUNDED).wait(40)

    assert isinstance(seen.error, ValueError)
    assert seen.items == [0, 1, 2]


def test_an_error_that_cannot_be_made_again_has_a_stand_in() -> None:
    with pytest.raises(RuntimeError, match="NeedsTwo: salt and pepper"):
        Flux.just(1).map_parallel(raises_needs_two, 1).block_last(40)


def test_a_result_that_cannot_be_made_again_is_an_error() -> None:
    with pytest.raises(TypeError) as raised:
        Flux.just("x").map_parallel(returns_needs_two, 1).block_last(40)
    assert any("could not unpickle" in note for note in raised.value.__notes__)


def test_an_exit_in_the_function_does_not_end_the_process() -> None:
    with pytest.raises(SystemExit):
        Flux.just(1).map_parallel(exits, 1).block_last(40)


def test_none_is_not_a_result() -> None:
    with pytest.raises(TypeError, match="map_parallel"):
        Flux.just(1).map_parallel(nothing, 1).block_last(40)


def test_a_dead_worker_is_named_and_nothing_is_lost() -> None:
    dropped: list[Any] = []
    with on_dropped(element=lambda element, where: dropped.append(element)):
        seen = Recorder.of(Flux.range(10).map_parallel(dies_at_three, 1), UNBOUNDED)
        seen.wait(40)

    assert isinstance(seen.error, WorkerDied)
    assert "a process of map_parallel(dies_at_three) died" in str(seen.error)
    assert seen.items == list(range(len(seen.items)))
    assert dropped == list(range(len(seen.items), len(seen.items) + len(dropped)))
    assert 3 in dropped
    assert gone()


def test_an_error_of_the_source_cancels_what_runs() -> None:
    with pytest.raises(Oops):
        Flux.error(Oops).start_with(1, 2).map_parallel(square, 1).block_last(40)

    assert gone()


def test_an_empty_source_starts_no_process() -> None:
    before = set(multiprocessing.active_children())

    assert Flux.empty().map_parallel(square, 4).collect_list().block() == []
    assert set(multiprocessing.active_children()) <= before


def test_a_pool_of_the_program_is_used_and_stays_open() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        streams = [Flux.range(30).map_parallel(process_of, 2, pool=pool) for _ in range(3)]
        processes = set(Flux.merge(*streams).collect_list().block(40) or ())
        assert Flux.range(100).map_parallel(square, 1, pool=pool).take(2).collect_list().block(40) == [0, 1]
        assert pool.submit(square, 5).result(40) == 25

    assert len(processes) == 1
    with pytest.raises(TypeError, match="needs a ProcessPoolExecutor for pool"):
        Flux.just(1).map_parallel(square, pool=3)  # type: ignore[arg-type]


def test_a_pool_that_is_shut_down_is_an_error() -> None:
    pool = ProcessPoolExecutor(1)
    pool.shutdown()

    with pytest.raises(WorkerDied):
        Flux.just(1).map_parallel(square, 1, pool=pool).block_last(40)


def test_calls_that_somebody_else_cancels_are_an_error() -> None:
    begun, go_on = threading.Event(), threading.Event()

    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(lambda: begun.set() or go_on.wait(40))
        begun.wait(40)
        recorder = Recorder.of(Flux.just(1, 2).map_parallel(square, 2, pool=pool), UNBOUNDED)
        pool.shutdown(wait=False, cancel_futures=True)
        go_on.set()
        recorder.wait()

    assert blocked.result()
    assert isinstance(recorder.error, WorkerDied)


def test_the_number_of_processes_is_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Flux.just(1).map_parallel(square, 0)
