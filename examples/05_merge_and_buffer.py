"""Two sensors with different periods, merged as they tick, in lists of four.

Time is virtual here: it stands still until the program advances it. So 12 seconds pass at once, and the
result is the same every time. With another scheduler, or without one, the same stream runs in real time.
"""

from penstock.streams import Flux, schedulers


def main() -> None:
    clock = schedulers.virtual_time()
    indoors = Flux.interval(2, scheduler=clock).map(lambda tick: f"in {tick}")
    outdoors = Flux.interval(3, scheduler=clock).map(lambda tick: f"out {tick}")
    windows = Flux.merge(indoors, outdoors).buffer(4)

    running = windows.subscribe(lambda window: print(f"{clock.now():4.0f} s  {window}"))
    clock.advance_by(12)
    running.cancel()
    clock.advance_by(60)

    print(f"timers left after the cancel: {clock.pending}")


if __name__ == "__main__":
    main()
