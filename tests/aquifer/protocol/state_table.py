"""Writes the table of a session's states on the page of the protocol.

``python -m tests.aquifer.protocol.state_table``
"""

from __future__ import annotations

import re

from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import Session, SessionEvent, SessionState
from tests.source.repository import ROOT

PAGE = ROOT / "docs" / "aquifer-protocol.md"
HEAD = "| What happens | joining | streaming | ended |\n|---|---|---|---|\n"
STATES = (SessionState.JOINING, SessionState.STREAMING, SessionState.ENDED)


def table() -> str:
    """A row for each event that can happen, with the state that follows; both dialects, where they differ."""
    rows = []
    for event in SessionEvent:
        cells = []
        for state in STATES:
            plain, extended = (
                _following(dialect, state, event) for dialect in (PlainSession, ExtendedSession)
            )
            cells.append(plain if plain == extended else f"plain: {plain}; extended: {extended}")
        rows.append(f"| {event.name.lower().replace('_', ' ')} | {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)


def _following(dialect: type[Session], state: SessionState, event: SessionEvent) -> str:
    step = dialect.table[state].get(event)
    if step is None:
        return "–"
    return "same" if step[1] is None else step[1].name.lower()


def with_table(page: str) -> str:
    """The page with the table as the code has it."""
    first, _, last = re.split(rf"({re.escape(HEAD)}(?:\|.*\n)*)", page)
    return "".join((first, table(), last))


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
