"""When a report was made, with which versions of what, and how the subjects were described to the kit."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from penstock.spec import VERSIONS
from penstock.tck.verification import Verification

SETTINGS: Final[tuple[str, ...]] = (
    "profile",
    "fanout",
    "max_elements_from_publisher",
    "max_supported_subscribers",
    "bounded_depth_of_on_next_and_request_recursion",
    "does_coordinated_emission",
    "skip_stochastic_tests",
    "processor_buffer_size",
    "puppet_is_the_subscriber",
)
"""The attributes of a test class that say what its subject is like, where it has them."""


def _own_version() -> str:
    for distribution in ("penstock-streams", "penstock"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "not installed"


@dataclass(frozen=True, slots=True)
class About:
    """What one has to know to run the same tests again."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(
        default_factory=lambda: {
            "penstock": _own_version(),
            "specification": list(VERSIONS)[-1],
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(),
        }
    )

    @classmethod
    def of(cls, verifications: Iterable[type[Verification]]) -> About:
        """Say it of a run of these, now."""
        return cls({kind.subject_name(): settings_of(kind) for kind in verifications})

    @property
    def line(self) -> str:
        """All but the settings, in a line."""
        said = self.versions
        return (
            f"{self.date}; penstock.tck {said['penstock']}, Reactive Streams {said['specification']}, "
            f"{said['implementation']} {said['python']} on {said['platform']}."
        )


def settings_of(verification: type[Verification]) -> dict[str, Any]:
    """What a test class says about its subject, in plain values."""
    said: dict[str, Any] = {
        "verification": next(
            (kind.__name__ for kind in verification.__mro__ if kind.__module__.startswith("penstock.tck.")),
            verification.__name__,
        ),
        "spelling": verification.spelling.name,
        "environment": asdict(verification.environment.with_variables()),
        "none_error_type": verification.none_error_type.__name__,
        "illegal_request_error_type": verification.illegal_request_error_type.__name__,
        "expected_skips": sorted(verification.expected_skips),
    }
    return said | {name: getattr(verification, name) for name in SETTINGS if hasattr(verification, name)}
