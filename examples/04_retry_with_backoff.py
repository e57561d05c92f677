"""Retry after a failure with growing pauses, and give up with an error that says why."""

import time

from penstock.streams import Flux, Retry, RetryExhausted

started = time.monotonic()
attempts = 0


def connect() -> Flux[str]:
    """Refuse the first two connections."""
    global attempts
    attempts += 1
    print(f"attempt {attempts}")
    if attempts <= 2:
        return Flux.error(ConnectionError("refused"))
    return Flux.just("21.5", "22.0")


def main() -> None:
    policy = Retry.backoff(5, first=0.01, only=(ConnectionError,))
    print(Flux.defer(connect).retry_when(policy).collect_list().block())

    hopeless = Flux.error(ConnectionError("refused")).retry_when(Retry.fixed(2, pause=0.01))
    try:
        hopeless.block_last()
    except RetryExhausted as error:
        print(f"{error} (cause: {error.__cause__!r})")


if __name__ == "__main__":
    main()
