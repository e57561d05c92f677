"""``expand``: each element leads to more of its kind."""

from penstock.streams import Flux, Mono, schedulers
from tests.streams.operators.rigs import Elsewhere
from tests.streams.recording import Recorder

TREE = {"root": ["left", "right"], "left": ["a", "b"], "right": ["c"]}


def children(name: str) -> Flux[str]:
    return Flux.from_iterable(TREE.get(name, []))


def test_a_level_comes_before_the_next() -> None:
    assert list(Flux.just("root").expand(children)) == ["root", "left", "right", "a", "b", "c"]


def test_an_empty_source_expands_to_nothing() -> None:
    assert list(Flux.empty().expand(children)) == []


def test_only_what_is_asked_for_is_sent() -> None:
    recorder = Recorder.of(Flux.just(1).expand(lambda n: Flux.just(n + 1)), first=3)

    assert recorder.check().items == [1, 2, 3]
    recorder.request(2)
    assert recorder.check().items == [1, 2, 3, 4, 5]
    recorder.cancel()


def test_a_long_line_of_descent_needs_no_deep_stack() -> None:
    assert Flux.just(0).expand(lambda n: Flux.just(n + 1)).take(20_000).count().block() == 20_000


def test_an_error_of_the_function_ends_it_with_a_note() -> None:
    def fail(name: str) -> Flux[str]:
        raise KeyError(name)

    recorder = Recorder.of(Flux.just("root").expand(fail), first=5).wait()

    assert recorder.items == ["root"]
    assert isinstance(recorder.error, KeyError)
    assert "expand(fail)" in recorder.error.__notes__[0]


def test_deep_finishes_a_branch_before_the_next() -> None:
    assert list(Flux.just("root").expand_deep(children)) == ["root", "left", "a", "b", "right", "c"]
    assert list(Flux.just("left", "right").expand_deep(children)) == ["left", "a", "b", "right", "c"]


def test_deep_of_nothing_is_nothing() -> None:
    assert list(Flux.empty().expand_deep(children)) == []


def test_deep_asks_for_one_element_at_a_time() -> None:
    sources: list[Elsewhere] = []

    def fresh(*elements: int) -> Elsewhere:
        sources.append(Elsewhere(*elements))
        return sources[-1]

    def leads_to(n: int) -> Elsewhere:
        return fresh(n * 10, n * 10 + 1) if n < 10 else fresh()

    recorder = Recorder.of(Flux.from_publisher(fresh(1, 2)).expand_deep(leads_to))
    assert [source.asked for source in sources] == [0]

    recorder.request(1)
    assert recorder.items == [1]
    assert [source.asked for source in sources] == [1, 0]
    recorder.request(2)
    assert recorder.items == [1, 10, 11]
    assert [source.asked for source in sources] == [1, 2, 1, 0]
    recorder.request(9)
    assert recorder.check().items == [1, 10, 11, 2, 20, 21]
    assert recorder.completed


def test_deep_completes_without_further_demand() -> None:
    recorder = Recorder.of(Flux.just("root").expand_deep(children), first=6)

    assert recorder.check().completed


def test_a_deep_line_of_descent_needs_no_deep_stack() -> None:
    assert Flux.just(0).expand_deep(lambda n: Flux.just(n + 1)).take(20_000).count().block() == 20_000


def test_deep_sends_an_element_before_the_error_of_its_function() -> None:
    def fail(name: str) -> Flux[str]:
        raise KeyError(name)

    recorder = Recorder.of(Flux.just("root").expand_deep(fail), first=1).wait()

    assert recorder.items == ["root"]
    assert isinstance(recorder.error, KeyError)
    assert "expand_deep(fail)" in recorder.error.__notes__[0]


def test_deep_cancels_every_open_level() -> None:
    levels = [Elsewhere(1, 2), Elsewhere(3, 4), Elsewhere(5, 6)]
    opened = iter(levels[1:])
    recorder = Recorder.of(
        Flux.from_publisher(levels[0]).expand_deep(lambda _: next(opened, Flux.empty())), first=3
    )
    assert recorder.items == [1, 3, 5]

    recorder.cancel()

    assert all(level.cancelled for level in levels)


def test_deep_with_levels_on_other_threads() -> None:
    pool = schedulers.shared_pool()

    def leads_to(n: int) -> Flux[int]:
        return Flux.just(n * 2, n * 2 + 1).subscribe_on(pool) if n < 64 else Flux.empty()

    def walked(n: int) -> list[int]:
        return [n] + [x for child in (n * 2, n * 2 + 1) if n < 64 for x in walked(child)]

    recorder = Recorder.of(Flux.just(1).expand_deep(leads_to), first=1000).wait()
    assert recorder.items == walked(1)


def test_a_mono_expands_both_ways() -> None:
    assert list(Mono.just("root").expand(children)) == ["root", "left", "right", "a", "b", "c"]
    assert list(Mono.just("root").expand_deep(children)) == ["root", "left", "a", "b", "right", "c"]
