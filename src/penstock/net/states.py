"""The life of a connection as others may watch it."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["ConnectionObserver", "Observing", "State", "tell_state"]

_log = logging.getLogger("penstock.net")


class State(enum.Enum):
    """Where a connection is in its life; each is told once, in this order."""

    CONNECTED = "connected"
    """The socket is up, with TLS if there is any; nobody has the connection yet."""
    CONFIGURED = "configured"
    """Its inbound and outbound sides are there; the handler is called next."""
    DISCONNECTING = "disconnecting"
    """It is over, for whatever reason; nothing more is received or sent."""


@runtime_checkable
class ConnectionObserver(Protocol):
    """Somebody who wants to know; give one to ``observe()``."""

    def on_state_change(self, connection: Connection, state: State, /) -> object:
        """The connection is in this state now. Called on the event loop: do not block."""
        ...


Observing = Callable[["Connection", State], object]
"""An observer as a plain function."""


def tell_state(connection: Connection, state: State) -> None:
    """Tell everybody who wants to know; an observer that fails harms nobody."""
    settings = connection.settings
    if settings.wiretap is not None:
        settings.wiretap.tell(connection.label, state.name)
    for observer in settings.observers:
        try:
            observer(connection, state)
        except Exception as fault:
            _log.error("%s an observer failed at %s: %r", connection.label, state.name, fault, exc_info=fault)
