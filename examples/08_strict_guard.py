"""A guard around somebody else's publisher names the rules that it breaks.

The guard protects the subscriber. It drops an element that was not requested, ends the stream with an error
that names the rule, and passes on nothing after the end. Every violation goes to `report`, or to the log.
`Flux.from_publisher` puts this guard around each publisher that is not one of ours.
"""

from typing import Any

from penstock.spec import RuleViolation, strict


class Pushy:
    """Sends three elements whether they were requested or not, and another one after its end."""

    def subscribe(self, subscriber: Any) -> None:
        subscriber.on_subscribe(self)
        for number in range(3):
            subscriber.on_next(number)
        subscriber.on_complete()
        subscriber.on_next("one more thing")

    def request(self, n: int) -> None:
        """Ignore demand, which is the mistake."""

    def cancel(self) -> None:
        """Ignore this as well."""


class TakesTwo:
    """Requests two elements."""

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
