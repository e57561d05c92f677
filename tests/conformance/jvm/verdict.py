"""What became of one test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """`outcome` is passed, failed or skipped; `why` is the message of a failure or the reason of a skip."""

    outcome: str
    why: str = ""
    seconds: float = 0.0
