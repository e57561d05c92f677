"""A Mono has at most one element, whatever stream it is told to go on with."""

import pytest

from penstock.streams import Flux, Mono, schedulers
from tests.streams.recording import Recorder

MANY = Flux.just(1, 2, 3)


@pytest.mark.parametrize(
    "mono",
    [
        pytest.param(
            lambda: Mono.error(ValueError()).on_error_resume(lambda error: MANY), id="on_error_resume"
        ),
        pytest.param(lambda: Mono.empty().switch_if_empty(MANY), id="switch_if_empty"),
        pytest.param(lambda: Mono.defer(lambda: MANY), id="defer"),
        pytest.param(lambda: Mono.using(lambda: 0, lambda _: MANY, lambda _: None), id="using"),
        pytest.param(lambda: Mono.just(0).then(MANY), id="then"),
        pytest.param(lambda: Flux.just(0).then(MANY), id="Flux.then"),
        pytest.param(lambda: Mono.just(0).flat_map(lambda _: MANY), id="flat_map"),
        pytest.param(lambda: Mono.from_publisher(MANY), id="from_publisher"),
    ],
)
def test_only_the_first_element_of_a_flux_gets_through(mono) -> None:
    recorder = Recorder.of(mono(), first=10)

    recorder.wait()

    assert recorder.items == [1]
    assert recorder.completed


def test_a_timeout_falls_back_to_one_element() -> None:
    clock = schedulers.virtual_time()
    recorder = Recorder.of(Mono.never().timeout(1, MANY, scheduler=clock), first=10)

    clock.advance_by(1)

    assert recorder.check().items == [1]
    assert recorder.completed
