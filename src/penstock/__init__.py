"""Penstock: Reactive Streams for Python, from the socket to Spark, with demand going the other way."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from penstock.spec import Processor, Publisher, Subscriber, Subscription
    from penstock.streams import Flux, Mono, Sinks

__version__ = "0.1.0"

__all__ = ["Flux", "Mono", "Processor", "Publisher", "Sinks", "Subscriber", "Subscription", "__version__"]


def __getattr__(name: str) -> Any:
    # Asked for when used: the conformance kit, which every start of pytest loads, has no need of them, and
    # the command imports them where it expects Ctrl-C.
    if name in ("Processor", "Publisher", "Subscriber", "Subscription"):
        from penstock import spec

        return getattr(spec, name)
    if name in ("Flux", "Mono", "Sinks"):
        from penstock import streams

        return getattr(streams, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


if os.environ.get("PENSTOCK_OBSERVE", "").strip() not in ("", "0"):
    # By name: no layer below it imports the observer, and neither does this module unless it is asked to.
    try:
        import_module("penstock.observe").publish()
    except OSError as problem:  # A program must not fail because it cannot be looked at.
        warn(f"the streams of this process are not shown: {problem}", RuntimeWarning, stacklevel=2)
