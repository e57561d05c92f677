"""The progress of long work: a bar with an estimate at a terminal, a line now and then elsewhere.

::

    with ProgressBar("verify", total=os.path.getsize(path), unit="bytes") as progress:
        for batch in batches:
            check(batch)
            progress.advance(len(batch))

Progress goes to standard error, so that the answer of the command can be piped. At a terminal rich draws it;
where nothing can be redrawn, or without rich, a line every few seconds says the same. A command that is
quiet, or that prints JSON, makes ``ProgressBar(…, hidden=True)``.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from penstock.cli.screen import Screen
from penstock.cli.style import has_rich
from penstock.cli.table import duration, size

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["ProgressBar"]

_LINE_EVERY: Final = 5.0
"""Seconds between two lines, where nothing can be redrawn."""
_SETTLED: Final = 1.0
"""Seconds before an estimate is worth printing."""


class ProgressBar:
    """Shows how far some work is; used in a ``with`` block, from any thread."""

    def __init__(
        self,
        what: str,
        *,
        total: int | None = None,
        unit: Literal["records", "bytes", "steps"] = "records",
        hidden: bool = False,
        screen: Screen | None = None,
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._hidden = hidden
        self._screen = Screen() if screen is None else screen
        self._done = 0
        self._note = ""
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_EVERY
        self._mutex = threading.Lock()
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.update(self._done + count)

    def update(self, done: int, note: str | None = None, *, total: int | None = None) -> None:
        """So much is done in all; ``note`` stands behind the figures from now on."""
        with self._mutex:
            self._done = done
            self._total = self._total if total is None else total
            self._note = self._note if note is None else note
            if self._rich is not None and self._task is not None:
                self._rich.update(self._task, completed=done, total=self._total, figures=self._figures())
            elif not self._hidden and time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + _LINE_EVERY
                self._screen.write(f"{self.line()}\n")

    def line(self) -> str:
        """Say everything in one line."""
        share = f"{self._done * 100 // self._total:3d} %  " if self._total else ""
        left = self._left()
        remaining = f", {duration(left)} left" if left is not None else ""
        return f"{self._what}  {share}{self._figures()}{remaining}"

    def _left(self) -> float | None:
        """Estimate the seconds that are left; None as long as that is a guess."""
        spent = time.monotonic() - self._began
        if not self._total or not self._done or spent < _SETTLED:
            return None
        return max(float(int(spent * (self._total - self._done) / self._done)), 0.0)

    def _figures(self) -> str:
        rate = self._done / max(time.monotonic() - self._began, 1e-3)
        if self._unit == "bytes":
            of = f" of {size(self._total)}" if self._total else ""
            said = f"{size(self._done)}{of}, {size(rate)}/s"
        else:
            of = f" of {self._total:,}" if self._total else ""
            said = f"{self._done:,}{of} {self._unit}" + (f", {rate:,.0f}/s" if self._unit != "steps" else "")
        return f"{said}; {self._note}" if self._note else said

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_EVERY
        if not self._hidden and self._screen.is_terminal and has_rich():
            self._rich = self._drawn()
            self._task = self._rich.add_task(self._what, total=self._total, figures=self._figures())
            self._rich.start()
        return self

    def _drawn(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        coloured = self._screen.is_coloured
        console = Console(
            file=self._screen.stream,
            force_terminal=True,
            no_color=not coloured,
            color_system="standard" if coloured else None,
            legacy_windows=False,
        )
        shown = BarColumn(bar_width=24) if self._total else SpinnerColumn("line")
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), shown]
        if self._total:
            columns.append(TextColumn("{task.percentage:>3.0f} %"))
        columns.append(TextColumn("{task.fields[figures]}", markup=False))
        if self._total:
            columns += [TimeRemainingColumn(compact=True), TextColumn("left")]
        return RichProgress(
            *columns,
            console=console,
            refresh_per_second=5,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
            self._rich = None
