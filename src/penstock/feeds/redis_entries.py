"""The ids of Redis streams, and the script that reads entries: what the feed needs of Redis itself."""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["READ_ENTRIES", "EntryId", "entry_id", "id_text"]

EntryId: TypeAlias = tuple[int, int]
"""Milliseconds since 1970, and a number among those of the same millisecond."""


def entry_id(text: str) -> EntryId:
    """``1700000000000-3`` as numbers, which can be compared."""
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


def id_text(key: EntryId) -> str:
    """The id as Redis writes it."""
    return f"{key[0]}-{key[1]}"


READ_ENTRIES: Final = """
local function pairs_of(flat)
  local made = {}
  for i = 1, #flat, 2 do made[flat[i]] = flat[i + 1] end
  return made
end
local function before(a, b)
  local a1, a2 = string.match(a, '(%d+)-(%d+)')
  local b1, b2 = string.match(b, '(%d+)-(%d+)')
  if #a1 ~= #b1 then return #a1 < #b1 end
  if a1 ~= b1 then return a1 < b1 end
  if #a2 ~= #b2 then return #a2 < #b2 end
  return a2 < b2
end
local stream, group, consumer, from = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local most, room = tonumber(ARGV[4]), tonumber(ARGV[5])
local trimmed = 0
if from == '>' then
  local info = pairs_of(redis.call('XINFO', 'STREAM', stream))
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local it = pairs_of(flat)
    if it['name'] == group and it['lag'] and info['first-entry']
        and before(it['last-delivered-id'], info['first-entry'][1]) then
      trimmed = it['lag'] - info['length']
      if trimmed > 0 then
        redis.call('XGROUP', 'SETID', stream, group, it['last-delivered-id'],
                   'ENTRIESREAD', info['entries-added'] - info['length'])
      end
    end
  end
end
local entries = {}
while #entries < most and room > 0 do
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, from)
  if not reply or #reply[1][2] == 0 then break end
  local entry = reply[1][2][1]
  entries[#entries + 1] = entry
  if from ~= '>' then from = entry[1] end
  if entry[2] then
    for _, part in ipairs(entry[2]) do room = room - #part end
  end
end
return {trimmed, entries}
"""
"""Reads entries up to a number of bytes, which XREADGROUP alone cannot, and counts those that are gone.

In one step: between a look and a read, a sender could trim the stream.
"""
