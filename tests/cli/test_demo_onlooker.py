"""What the demo says of who holds whom up is true of its gateways."""

import threading
from contextlib import ExitStack

import pytest

from penstock import Flux
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.cli import main
from penstock.cli.demo.onlooker import Onlooker
from penstock.observe import DashboardOptions
from penstock.spec import Subscription
from tests.aquifer.faults.rigs import ANYWHERE, eventually
from tests.free_ports import free_port


class Stuck:
    """A required reader that requests nothing until it is let go."""

    def __init__(self) -> None:
        self.subscribed = threading.Event()
        self.subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        self.subscribed.set()

    def on_next(self, element: object, /) -> None: ...
    def on_error(self, error: BaseException, /) -> None: ...
    def on_complete(self) -> None: ...


def small_gateway() -> Gateway:
    return Gateway(Flux.range(0, 1000), ANYWHERE, codec="json", journal=MemoryJournal(max_records=100))


def test_the_reader_that_holds_a_log_full_is_named_and_nobody_when_it_has_read_all() -> None:
    with ExitStack() as opened:
        first, last = (opened.enter_context(small_gateway()) for _ in range(2))
        stuck = Stuck()
        AquiferPublisher(last.endpoint, codec="json", window=1, max_window=1).subscribe(stuck)
        quick = AquiferPublisher(first.endpoint, codec="json").flux().subscribe(lambda number: None)
        onlooker = Onlooker({first.endpoint: "Spark", last.endpoint: "the reader"})
        assert onlooker.sentence == ""

        def looked() -> str:
            onlooker.look()
            return onlooker.sentence

        eventually(lambda: looked().startswith("the reader limits the flow: for "))
        assert stuck.subscribed.wait(30)
        assert stuck.subscription is not None
        stuck.subscription.request(10_000_000)
        eventually(lambda: looked() == "")
        stuck.subscription.cancel()
        quick.cancel()


def test_the_address_of_a_dashboard_is_told() -> None:
    with Gateway(Flux.never(), ANYWHERE) as gateway, Onlooker({gateway.endpoint: "Spark"}) as onlooker:
        told: list[str] = []
        onlooker.show(told.append)
        assert told[0].startswith("dashboard at http://127.0.0.1:")


def test_the_dashboard_is_where_it_is_wanted() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Gateway(Flux.never(), ANYWHERE) as gateway, Onlooker({gateway.endpoint: "Spark"}) as onlooker:
        told: list[str] = []
        onlooker.show(told.append, DashboardOptions(listen=address))
    assert told == [f"dashboard at http://{address}/"]


def test_without_gateways_there_is_no_dashboard(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--only-streams", "--dashboard"]) == 2
    assert "--dashboard needs the whole demo" in capsys.readouterr().err
