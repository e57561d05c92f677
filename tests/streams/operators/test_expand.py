"""``expand``: each element leads to more of its kind."""

from penstock.streams import Flux
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
