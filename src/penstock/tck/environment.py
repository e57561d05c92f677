"""How long the kit waits, and how long it listens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

VARIABLES: Final[Mapping[str, str]] = {
    "PENSTOCK_TCK_TIMEOUT": "timeout",
    "PENSTOCK_TCK_NO_SIGNALS": "no_signals",
    "PENSTOCK_TCK_GC": "gc",
    "PENSTOCK_TCK_SETUP": "setup",
    "PENSTOCK_TCK_LIMIT": "limit",
}
"""Environment variables that win over what a test class says, and the field that each sets, in seconds."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The time limits of a verification, in seconds.

    A test class sets its own as a class attribute; a slow machine sets them from outside::

        class TestRange(PublisherVerification):
            environment = Environment(timeout=5)

        PENSTOCK_TCK_TIMEOUT=10 pytest tests

    ``timeout`` and ``no_signals`` differ on purpose. A test that expects a signal goes on as soon as it
    comes, so a long time-out costs nothing while all is well. A test that expects silence has to listen to
    the end, so that time is short.
    """

    timeout: float = 2.0
    """How long to wait for something that has to happen; counted anew as long as signals keep coming."""
    no_signals: float = 0.02
    """How long to listen before the kit says that nothing came."""
    gc: float = 2.0
    """How long a Publisher may take to let go of a Subscriber that has left (§3.13)."""
    budget: float = 0.1
    """How long ``request`` and ``cancel`` may take (§3.4, §3.5); the quickest of several calls counts."""
    setup: float = 30.0
    """How long ``create_publisher`` and the other hooks that make a subject may take."""
    limit: float = 120.0
    """How long one test may take in all, however busily the subject signals."""

    def __post_init__(self) -> None:
        for name in ("timeout", "no_signals", "gc", "budget", "setup", "limit"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"Environment.{name} must be more than 0 seconds, not {getattr(self, name)!r}"
                )

    def with_variables(self, variables: Mapping[str, str] | None = None) -> Environment:
        """Return these limits, changed as the environment variables of ``VARIABLES`` say."""
        given = os.environ if variables is None else variables
        changes: dict[str, float] = {}
        for variable, field in VARIABLES.items():
            if given.get(variable):
                try:
                    changes[field] = float(given[variable])
                except ValueError:
                    raise ValueError(
                        f"{variable} must be a number of seconds, not {given[variable]!r}"
                    ) from None
        return replace(self, **changes) if changes else self
