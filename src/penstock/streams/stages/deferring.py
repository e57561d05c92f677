"""A stream that is made when somebody subscribes: ``defer``, ``using``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.segment import Op
from penstock.streams.source import Next, Source
from penstock.streams.stages.failing import FailedSource

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["DeferSource"]


class DeferSource(Source):
    """Asks for the stream when somebody subscribes."""

    def __init__(
        self,
        label: str,
        factory: Callable[[], Any],
        convert: Callable[[Any, str], Stream[Any]],
        *shows: Any,
    ) -> None:
        super().__init__(label, *shows)
        self._factory = factory
        self._convert = convert

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """The operators below join those of the stream that the function returns."""
        try:
            stream = self._convert(self._factory(), self.label)
        except BaseException as error:
            FailedSource(error, self.label).attach(ops, downstream)
            if asks_main_thread_to_stop(error):
                raise
            return None
        return stream._of(stream._source, (*stream._ops, *ops)), downstream
