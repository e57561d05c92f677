"""A dashboard that runs beside something else: a thread that looks, and a thread that serves."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Self

from penstock import __version__
from penstock.endpoint import Endpoint
from penstock.observe.dashboard.access import VisitorAccess
from penstock.observe.dashboard.history import History
from penstock.observe.dashboard.latest import LatestUpdate
from penstock.observe.dashboard.options import DashboardOptions
from penstock.observe.live import LiveFigures, LiveUpdate
from penstock.observe.model import Snapshot
from penstock.observe.web_server import WebServer

__all__ = ["Dashboard"]

_log = logging.getLogger("penstock.observe")

_MOST_CONNECTIONS: Final = 128
_CLOSING: Final = 10.0
"""Seconds that closing may take; the thread is a daemon and never holds up the end of the process."""


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
        self._guard(self._endpoint)  # the wrong options show here, before anything is open
        self._title = title
        self._figures = LiveFigures(look)
        self._interval = interval
        self._history = History()
        self._history_mutex = threading.Lock()
        self._latest = LatestUpdate()
        self._instance = secrets.token_hex(6)
        self._closing = threading.Event()
        self._server = WebServer(
            self._endpoint,
            thread="penstock-dashboard",
            subject="the dashboard",
            most_connections=_MOST_CONNECTIONS,
            tls=self._tls,
        )
        self._looking: threading.Thread | None = None

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
        from penstock.observe.dashboard.application import application

        self._server.listen()
        self._endpoint = self._server.endpoint
        access = self._guard(self._endpoint)
        self._server.serve(
            application(access, self._latest, self._encoded_history), self._latest.open, self._latest.close
        )
        self._looking = threading.Thread(target=self._poll, name="penstock-dashboard-look", daemon=True)
        self._looking.start()

    def close(self) -> None:
        """Tell the browsers, and stop; calling it again does nothing."""
        self._closing.set()
        self._latest.close()
        self._server.close()
        if self._looking is not None:
            self._looking.join(_CLOSING)
            if self._looking.is_alive():
                _log.warning("the thread %s of the dashboard has not ended yet", self._looking.name)
            self._looking = None

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
        # As ASCII: the name of a file may have bytes that are not text, and that nothing else can encode.
        return json.dumps(shown, separators=(",", ":")).encode()

    def _encoded_history(self) -> bytes:
        with self._history_mutex:
            shown = {"instance": self._instance, **self._history.to_dict()}
        return json.dumps(shown, separators=(",", ":")).encode()


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
