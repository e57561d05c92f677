"""How the two topics of a log in Kafka have to be set up, so that Kafka keeps all of the log.

Topics that somebody else has created have the defaults of the brokers: Kafka deletes what is older than a
week. In the compacted topic those are the epoch, the cursors and the marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LARGEST", "created_topics", "settings_to_mend"]

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a message."""
_SEGMENT: Final = 64 * 1024 * 1024
"""Bytes of the files of a topic: Kafka deletes them as a whole."""
_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_POLICY: Final = "cleanup.policy"


def created_topics(topic: str, state: str) -> dict[str, dict[str, str]]:
    """The settings of both topics, if the journal creates them."""
    sizes = {"max.message.bytes": str(LARGEST), "segment.bytes": str(_SEGMENT)}
    return {
        topic: {**sizes, _POLICY: "delete", **_FOR_EVER},
        state: {_POLICY: "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"},
    }


def settings_to_mend(found: Mapping[str, str], *, compacted: bool) -> dict[str, str]:
    """What has to be set in a topic with these settings, before the log is safe there."""
    policies = {each.strip() for each in found.get(_POLICY, "").split(",")}
    if compacted:
        # With "compact,delete" Kafka deletes old cursors, although they are the last ones.
        return {} if policies == {"compact"} else {_POLICY: "compact"}
    wanted = dict(_FOR_EVER)
    if "compact" in policies:
        wanted[_POLICY] = "delete"  # Batches have no keys.
    return {name: value for name, value in wanted.items() if found.get(name, value) != value}
