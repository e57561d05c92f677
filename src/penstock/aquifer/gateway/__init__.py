"""The gateway's side: one log, many subscribers."""

from penstock.aquifer.gateway.gateway import Gateway

__all__ = ["Gateway"]
