"""Flux and Mono: streams that are bounded at every step.

>>> from penstock.streams import Flux
>>> Flux.range(1, 5).map(lambda x: x * x).filter(lambda x: x % 2 == 1).collect_list().block()
[1, 9, 25]
"""

from penstock.streams import schedulers
from penstock.streams.api.collection import Comparable
from penstock.streams.api.filters import NoElement, TooManyElements
from penstock.streams.api.hooks import Signal
from penstock.streams.best_effort import BestEffortSink
from penstock.streams.connectable import ConnectableFlux
from penstock.streams.errors import on_dropped
from penstock.streams.events import Listener, Outcome, Stage, StageState, listening
from penstock.streams.explain import explain, scan
from penstock.streams.flux import Flux, GroupedFlux
from penstock.streams.fusion.fragments import HandleSink
from penstock.streams.hub import Hub, HubClosed, HubProducer, TooManyProducers
from penstock.streams.mono import Mono
from penstock.streams.operators.circuit import CircuitBreaker, CircuitOpen, CircuitState
from penstock.streams.operators.connectable import Disconnected, SharedRun
from penstock.streams.operators.group_by import TooManyGroups
from penstock.streams.operators.map_parallel import WorkerDied
from penstock.streams.operators.overflow import BufferOverflow, Overflow
from penstock.streams.operators.recovery import Retry, RetryExhausted
from penstock.streams.operators.retry_budget import RetryBudget
from penstock.streams.operators.sources import Emitter, GenerateSink
from penstock.streams.parallel_flux import ParallelFlux
from penstock.streams.processor import StreamProcessor, processor
from penstock.streams.single import Single
from penstock.streams.sinks import EmissionFailed, EmitResult, Sink, SinkOne, Sinks
from penstock.streams.stage_meter import StageFigures, StageMeter, metering
from penstock.streams.stream import Stream
from penstock.streams.terminal import Running

__all__ = [
    "BestEffortSink",
    "BufferOverflow",
    "CircuitBreaker",
    "CircuitOpen",
    "CircuitState",
    "Comparable",
    "ConnectableFlux",
    "Disconnected",
    "EmissionFailed",
    "EmitResult",
    "Emitter",
    "Flux",
    "GenerateSink",
    "GroupedFlux",
    "HandleSink",
    "Hub",
    "HubClosed",
    "HubProducer",
    "Listener",
    "Mono",
    "NoElement",
    "Outcome",
    "Overflow",
    "ParallelFlux",
    "Retry",
    "RetryBudget",
    "RetryExhausted",
    "Running",
    "SharedRun",
    "Signal",
    "Single",
    "Sink",
    "SinkOne",
    "Sinks",
    "Stage",
    "StageFigures",
    "StageMeter",
    "StageState",
    "Stream",
    "StreamProcessor",
    "TooManyElements",
    "TooManyGroups",
    "TooManyProducers",
    "WorkerDied",
    "explain",
    "listening",
    "metering",
    "on_dropped",
    "processor",
    "scan",
    "schedulers",
]
