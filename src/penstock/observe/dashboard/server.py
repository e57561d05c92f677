"""A dashboard that runs beside something else: a thread that looks, and a thread that serves."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from penstock import __version__
from penstock.endpoint import Endpoint
from penstock.observe.dashboard.access import VisitorAccess
from penstock.observe.dashboard.history import History
from penstock.observe.dashboard.latest import LatestUpdate
from penstock.observe.dashboard.options import DashboardOptions
from penstock.observe.live import LiveFigures, LiveUpdate
from penstock.observe.model import Snapshot

if TYPE_CHECKING:
    from uvicorn import Server

__all__ = ["Dashboard"]

_log = logging.getLogger("penstock.observe")

_SERVING: Final = "penstock-dashboard"
"""The name of the thread that serves."""
_MOST_CONNECTIONS: Final = 128
_CLOSING: Final = 10.0
"""Seconds that closing may take; the threads are daemons and never hold up the end of the process."""


class _OwnMessages(logging.Filter):
    """Keeps what uvicorn says on our thread out of the log of the program.

    It reports every connection that is cut, with a traceback: a browser that does not read while the
    dashboard closes, a request that is not HTTP. The application logs its own errors.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the messages of a dashboard; those of other servers in this process pass."""
        if record.threadName != _SERVING:
            return True
        _log.debug("uvicorn: %s", record.getMessage())
        return False


class Dashboard:
    """Serves one page that shows the snapshots of ``look``, from ``start()`` to ``close()``.

    ::

        with Dashboard(observer.look) as dashboard:
            print(dashboard.url)

    It listens on loopback unless the options say otherwise. It has two threads of its own: one calls ``look``
    every ``interval`` seconds, the other one serves the page, and neither holds up the caller. Needs the
    extra ``observe``: ``pip install 'penstock-streams[observe]'``.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        options: DashboardOptions | None = None,
        *,
        title: str = "",
        interval: float = 1.0,
    ) -> None:
        """Check the options; BadToken if a token is needed, ImportError if the extra is missing."""
        if any(find_spec(needed) is None for needed in ("starlette", "uvicorn")):
            raise ImportError(
                "the dashboard needs starlette and uvicorn: pip install 'penstock-streams[observe]'"
            )
        self._options = options if options is not None else DashboardOptions()
        self._endpoint = self._options.endpoint()
        self._token = self._options.token()
        self._tls = _tls(self._options)
        self._access = self._guard(self._endpoint)  # the wrong options show here, before anything is open
        self._title = title
        self._figures = LiveFigures(look)
        self._interval = interval
        self._history = History()
        self._history_mutex = threading.Lock()
        self._latest = LatestUpdate()
        self._instance = secrets.token_hex(6)
        self._closing = threading.Event()
        self._own_messages = _OwnMessages()
        self._server: Server | None = None
        self._socket: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def _guard(self, endpoint: Endpoint) -> VisitorAccess:
        options = self._options
        return VisitorAccess(
            endpoint, token=self._token, names=options.names, encrypted=self._tls is not None
        )

    @property
    def url(self) -> str:
        """Where to find the page; it never contains a secret."""
        host = self._endpoint.host
        if host in ("*", "0.0.0.0", "::"):
            host = socket.gethostname()
        if ":" in host:
            host = f"[{host}]"
        return f"{'https' if self._tls is not None else 'http'}://{host}:{self._endpoint.port}/"

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach it without encryption."""
        return self._tls is None and not self._endpoint.is_loopback

    def start(self) -> None:
        """Begin to listen and to look; OSError if the address cannot be used."""
        if self._socket is not None:
            raise RuntimeError("this dashboard has been started before; make another one")
        self._socket = _listening(self._endpoint)
        port = self._socket.getsockname()[1]
        self._endpoint = replace(self._endpoint, port=port)
        self._access = self._guard(self._endpoint)
        self._server = self._make_server()
        logging.getLogger("uvicorn.error").addFilter(self._own_messages)
        for name, run in ((_SERVING, self._serve), ("penstock-dashboard-look", self._poll)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Tell the browsers, and stop; calling it again does nothing."""
        self._closing.set()
        self._latest.close()
        if self._server is not None:
            self._server.should_exit = True
        for thread in self._threads:
            thread.join(_CLOSING)
            if thread.is_alive():
                _log.warning("the thread %s of the dashboard has not ended yet", thread.name)
        self._threads.clear()
        logging.getLogger("uvicorn.error").removeFilter(self._own_messages)
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- looking
    def _poll(self) -> None:
        while not self._closing.is_set():
            update = self._figures.update()
            with self._history_mutex:
                self._history.add(update)
            self._latest.set(self._encoded(update))
            self._closing.wait(self._interval)

    def _encoded(self, update: LiveUpdate) -> bytes:
        shown = {
            "instance": self._instance,
            "version": __version__,
            "title": self._title,
            "interval": self._interval,
            **update.to_dict(),
        }
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()

    def _encoded_history(self) -> bytes:
        with self._history_mutex:
            shown = {"instance": self._instance, **self._history.to_dict()}
        return json.dumps(shown, separators=(",", ":")).encode()

    # ---------------------------------------------------------------- serving
    def _make_server(self) -> Server:
        import uvicorn

        from penstock.observe.dashboard.application import application

        config = uvicorn.Config(
            application(self._access, self._latest, self._encoded_history),
            access_log=False,
            log_config=None,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=16384,
        )
        config.load()
        config.ssl = self._tls
        return uvicorn.Server(config)

    def _serve(self) -> None:
        try:
            asyncio.run(self._serve_on_loop())
        except Exception:
            _log.exception("the dashboard has stopped")

    async def _serve_on_loop(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        self._latest.open(asyncio.get_running_loop())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._latest.close()
            await self._cut_off()

    async def _cut_off(self) -> None:
        """Abort what is still connected: a browser that does not read would keep its connection for ever."""
        assert self._server is not None
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        await asyncio.sleep(0)  # the loop tells each connection that it is lost, and closes its socket
        await asyncio.sleep(0)


def _listening(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if endpoint.is_ipv6 else socket.AF_INET
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, endpoint.port))
        sock.listen(64)
    except OSError as error:
        sock.close()
        place = f"{endpoint.host}:{endpoint.port}"
        raise OSError(
            error.errno,
            f"the dashboard cannot listen at {place}: {error.strerror}; choose another address, "
            f"or {endpoint.host}:0 for any free port",
        ) from None
    return sock


def _tls(options: DashboardOptions) -> ssl.SSLContext | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"cannot use the certificate {options.tls_cert} with the key {options.tls_key}: {error}; "
            "both are PEM files that belong together"
        ) from None
    return context
