"""The time zone of a session: where a timestamp is from that does not say so."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

__all__ = ["Zone", "session_zone"]

_SETTING: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


class Zone:
    """A zone as Spark names it: ``Europe/Berlin``, ``+01:00``, ``GMT+8``; None is that of this machine."""

    def __init__(self, name: str | None) -> None:
        self._zone = None if name is None else _zone(name)
        self.key = "UTC" if self._zone is datetime.UTC else getattr(self._zone, "key", None)
        """What it is called in the tz database; None if it is not, or not known."""

    def instant(self, moment: datetime.datetime) -> datetime.datetime:
        """When it was so late there.

        Of a time that there was twice it is the first; one that was skipped is as much later, as in Java.
        """
        return moment.replace(tzinfo=self._zone).astimezone(datetime.UTC)


@lru_cache(8)
def _zone(name: str) -> datetime.tzinfo:
    if name in ("UTC", "Z", "GMT", "UT"):
        return datetime.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        ahead = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return datetime.timezone(ahead if sign == "+" else -ahead)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{_SETTING} is {name!r}, and this machine does not know that time zone: give one of the tz "
            "database, as Europe/Berlin, or an offset, as +01:00; where there is no such database, "
            "pip install tzdata"
        ) from error


def session_zone() -> Zone:
    """The zone of the session that this task works for.

    Spark tells tasks the settings that were made, not its defaults. The default is the zone of the driver's
    machine, and :func:`~penstock.spark.register` sets what it is; without that it is taken for ours.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    return Zone(None if task is None else task.getLocalProperty(_SETTING))
