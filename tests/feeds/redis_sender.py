"""Sends numbers to a Redis stream until there is a file, and notes in another what was acknowledged."""

import sys
import time
from pathlib import Path

import redis


def main(port: str, stream: str, noted: str, enough: str) -> None:
    path = Path(noted)
    done = path.read_bytes().count(b"\n") if path.exists() else 0
    client = redis.Redis(port=int(port))
    with path.open("ab", buffering=0) as note:
        while not Path(enough).exists():
            pipe = client.pipeline(transaction=False)
            for number in range(done, done + 20):
                pipe.xadd(stream, {"value": b"%d" % number})
            try:
                pipe.execute()
                note.write(b"".join(b"%d\n" % number for number in range(done, done + 20)))
                done += 20
            except (redis.ConnectionError, redis.TimeoutError):
                pass  # Not acknowledged: they are sent again.
            time.sleep(0.01)  # The pace of this sender.


if __name__ == "__main__":
    main(*sys.argv[1:])
