"""What the subscriber's side wants done: the machine decides, whoever drives it acts."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.messages import Control

__all__ = ["Connect", "Effect", "Finish", "Join", "Say", "Take"]


class Connect(NamedTuple):
    """Open a new control connection in place of the one there is; close the data connection, unless kept."""

    keep_data: bool = False


class Say(NamedTuple):
    """Send a control message."""

    message: Control


class Join(NamedTuple):
    """Open the data connection: to this port, for this topic (empty: for everything)."""

    port: int
    topic: bytes


class Take(NamedTuple):
    """Records have come, in order and without a gap."""

    frame: Frame


class Finish(NamedTuple):
    """It is over, well or not."""

    error: BaseException | None


Effect: TypeAlias = Connect | Say | Join | Take | Finish
