"""Somebody else's publisher, and a guard around it that says which rule it breaks.

The guard keeps the subscriber safe: an element that nobody asked for is held back, the stream ends with an
error that names the rule, and what comes after the end is not passed on. Every violation goes to `report`, or
to the log. `Flux.from_publisher` puts this guard around each publisher that is not one of ours.
"""

from typing import Any

from penstock.spec import RuleViolation, strict


class Pushy:
    """Sends three elements whether they were asked for or not, and goes on after its end."""

    def subscribe(self, subscriber: Any) -> None:
        subscriber.on_subscribe(self)
        for number in range(3):
            subscriber.on_next(number)
        subscriber.on_complete()
        subscriber.on_next("one more thing")

    def request(self, n: int) -> None:
        """Not a good listener."""

    def cancel(self) -> None:
        """Nor now."""


class TakesTwo:
    """A subscriber that asks for two elements."""

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(2)

    def on_next(self, element: Any) -> None:
        print("got", element)

    def on_error(self, error: BaseException) -> None:
        print("failed:", error)

    def on_complete(self) -> None:
        print("complete")


def main() -> None:
    found: list[RuleViolation] = []
    strict(Pushy(), report=found.append).subscribe(TakesTwo())
    for violation in found:
        print(f"rule {violation.rule}: {violation.happened}")


if __name__ == "__main__":
    main()
