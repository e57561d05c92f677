"""The gateway's side: one log, many subscribers."""

from penstock.aquifer.gateway.gateway import Gateway
from penstock.aquifer.gateway.intake import ReplayableSource

__all__ = ["Gateway", "ReplayableSource"]
