"""Bridges to other libraries that speak Reactive Streams, or something close to it.

Each bridge has an extra of its own, so that the core stays free of dependencies:

- :mod:`penstock.interop.reactivex_bridge`: Observables of RxPY, both ways (``penstock-streams[interop]``).
- :mod:`penstock.interop.rsocket_bridge`: Publishers and Subscribers of rsocket-py, both ways
  (``penstock-streams[interop]``).
- :mod:`penstock.interop.jvm`: Java, inside one process (``penstock-streams[jvm]``).

asyncio and ``concurrent.futures`` need no bridge. ``Flux.from_publisher`` takes anybody's Publisher, and from
there on ``async for``, ``await``, ``to_async_iterable(prefetch)`` and ``to_future()`` consume it;
``Flux.from_async_iterable`` and ``Mono.from_future`` go the other way. ``docs/interop.md`` shows them all.
"""
