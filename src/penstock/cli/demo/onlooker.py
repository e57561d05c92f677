"""Who holds whom up, while the demo runs: the verdict of an observer, and a dashboard beside the demo.

Both look at the same two gateways. An observer is used by one thread at a time, so a lock is around it, and a
thread of its own looks once a second: a gateway that is busy may take a while to answer, and the picture must
not wait for that. Without the extra ``observe`` there is no dashboard; the verdict needs no extra.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from penstock.aquifer import AquiferError
from penstock.cli.errors import ScreenLog
from penstock.cli.logs import is_json
from penstock.cli.table import duration
from penstock.observe import DashboardOptions, Observer

if TYPE_CHECKING:
    from penstock.observe import Snapshot

__all__ = ["Onlooker"]

_EVERY: Final = 1.0
_PATIENCE: Final = 2.0
_LONGEST: Final = 5.0
"""Seconds that the last look may take; the thread ends with the process otherwise."""
_ANYWHERE: Final = "127.0.0.1:0"


class Onlooker:
    """Looks at gateways once a second, between entering and leaving a block."""

    def __init__(self, readers: Mapping[str, str]) -> None:
        """Look at the endpoints in ``readers``, each of which has one reader, with a name for people."""
        self.sentence = ""
        """Which hop limits the flow, in plain words; empty if that is not known yet, or if none does."""
        self._readers = dict(readers)
        self._observer = Observer(*readers, timeout=_PATIENCE)
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-demo-onlooker", daemon=True)
        self._opened = ExitStack()

    def look(self) -> Snapshot:
        """Take a snapshot; from any thread."""
        with self._mutex:
            snapshot = self._observer.look()
        self.sentence = self._said(snapshot)
        return snapshot

    def _said(self, snapshot: Snapshot) -> str:
        """The verdict with the names of the demo, in which each gateway has one reader."""
        verdict = snapshot.verdict
        if verdict is None or verdict.limiting is None:
            return ""
        limiting = snapshot.hop(verdict.limiting)
        name = self._readers.get(limiting.where)
        if name is None or limiting.kind not in ("cursor", "query"):
            return verdict.sentence
        is_full = snapshot.hop(f"{limiting.where}/log").full_seconds is not None
        how = "the log before it is full" if is_full else "it falls behind"
        return f"{name} limits the flow: for {duration(int(verdict.since or 0))}, and {how}"

    def show(self, note: Callable[[str], object], wanted: DashboardOptions | None = None) -> None:
        """Serve a dashboard, at a free port of this machine unless an address is wanted; tell its address."""
        options = wanted or DashboardOptions()
        if options.listen is None:
            options = replace(options, listen=_ANYWHERE)
        try:
            from penstock.cli.dashboard.server import serving

            if not is_json():  # Otherwise the messages of all packages are told already.
                self._opened.enter_context(ScreenLog(note, layer="penstock.observe"))
            self._opened.enter_context(serving(self.look, options, note, "penstock demo"))
        except ImportError:
            note("a dashboard needs: pip install 'penstock-streams[observe]'")

    def _watch(self) -> None:
        while not self._over.wait(_EVERY):
            try:
                self.look()
            except AquiferError:
                self.sentence = ""  # A gateway that does not answer: the director notices if it is gone.

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._opened.close()
        self._thread.join(_LONGEST)
