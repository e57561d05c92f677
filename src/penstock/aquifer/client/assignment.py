"""Which partitions a member of a reader group gives up, and which it takes.

Every member decides for itself, from what the gateway says of the group. All see the same and follow the same
rule, so each partition has a reader in the end, and no member has two more than another. A member that looks
at an old state may be wrong for a moment: then the gateway does not let it take a partition, or it gives up
one that it takes back later. It never reads a partition beside another member.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.aquifer.status import GroupStatus

__all__ = ["Moves", "is_done", "moves_of"]


@dataclass(frozen=True, slots=True)
class Moves:
    """What a member should do."""

    give_up: tuple[int, ...] = ()
    take: tuple[int, ...] = ()


def is_done(group: GroupStatus, number: int) -> bool:
    """Whether everything in a partition was acknowledged, up to the end of the stream."""
    return group.end is not None and group.partitions[number].acknowledged >= group.end


def moves_of(group: GroupStatus, me: str, mine: Collection[int]) -> Moves:
    """What the member ``me`` should do, which reads the partitions ``mine`` and gives none of these up yet.

    Members get equally many partitions, and those that have most already get one more if it does not come out
    even: so as few as possible change hands.
    """
    names = [member.name for member in group.members if not member.leaving]
    if me not in names:
        return Moves()
    open_partitions = [one.number for one in group.partitions if not is_done(group, one.number)]
    read = {
        member.name: sum(not is_done(group, number) for number in member.partitions)
        for member in group.members
    }
    each, left_over = divmod(len(open_partitions), len(names))
    ranked = sorted(names, key=lambda name: (-read[name], name))
    quota = each + (ranked.index(me) < left_over)
    mine = sorted(number for number in mine if number in open_partitions)
    if len(mine) > quota:
        return Moves(give_up=tuple(mine[quota:]))
    free = [one.number for one in group.partitions if one.free and one.number in open_partitions]
    free = [number for number in free if number not in mine]
    # Each begins somewhere else, so that members that look at the same time want different ones.
    begin = ranked.index(me) * len(free) // len(names)
    wanted = free[begin:] + free[:begin]
    return Moves(take=tuple(wanted[: quota - len(mine)]))
