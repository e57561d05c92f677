"""Flux and Mono: streams that are bounded at every step.

>>> from penstock.streams import Flux
>>> Flux.range(1, 5).map(lambda x: x * x).filter(lambda x: x % 2 == 1).collect_list().block()
[1, 9, 25]
"""

from penstock.streams import schedulers
from penstock.streams.dropped import on_dropped
from penstock.streams.explaining import explain
from penstock.streams.flux import Flux
from penstock.streams.leaving import Running
from penstock.streams.listening import Listener, Outcome, Stage, StageState, listening
from penstock.streams.mono import Mono
from penstock.streams.processor import StreamProcessor, processor
from penstock.streams.retrying import Retry, RetryExhausted
from penstock.streams.scanning import scan
from penstock.streams.sinks import EmissionFailed, EmitResult, Sink, SinkOne, Sinks
from penstock.streams.stages.emitting import Emitter
from penstock.streams.stages.overflowing import BufferOverflow, Overflow

__all__ = [
    "BufferOverflow",
    "EmissionFailed",
    "EmitResult",
    "Emitter",
    "Flux",
    "Listener",
    "Mono",
    "Outcome",
    "Overflow",
    "Retry",
    "RetryExhausted",
    "Running",
    "Sink",
    "SinkOne",
    "Sinks",
    "Stage",
    "StageState",
    "StreamProcessor",
    "explain",
    "listening",
    "on_dropped",
    "processor",
    "scan",
    "schedulers",
]
