"""The gateway's side: one log, many subscribers."""

from penstock.aquifer.gateway.gateway import Gateway
from penstock.aquifer.gateway.intake import ReplayableSource
from penstock.aquifer.gateway.stream import StreamOptions

__all__ = ["Gateway", "ReplayableSource", "StreamOptions"]
