"""A Subscriber without any library: four methods, and a request for each batch.

It works with every Reactive Streams publisher. It requests three elements, processes them, and requests three
more; the source makes no more than that.
"""

from penstock.spec import Subscription
from penstock.streams import Flux


class BatchPrinter:
    """Prints three elements at a time."""

    def __init__(self) -> None:
        self.batch: list[int] = []

    def on_subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        subscription.request(3)

    def on_next(self, element: int) -> None:
        self.batch.append(element)
        if len(self.batch) == 3:
            print("batch", self.batch)
            self.batch = []
            self.subscription.request(3)

    def on_error(self, error: BaseException) -> None:
        print("failed", error)

    def on_complete(self) -> None:
        print("rest", self.batch)


def main() -> None:
    source = Flux.range(1, 8).do_on_request(lambda n: print("  asked for", n))
    source.map(lambda number: number * number).subscribe(BatchPrinter())


if __name__ == "__main__":
    main()
