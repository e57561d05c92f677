"""Peers that ask for too much, say too much, or do not read: each is held to its bounds, the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import zmq

from penstock.aquifer import AquiferPublisher, Gateway, Limits, MemoryJournal
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    Counting,
    Numbers,
    Peer,
    counted,
    eventually,
    has,
    read,
    reading,
    session_of,
    stays,
)
from tests.streams.recording import Recorder


def code_of(answer: dict[str, Any]) -> str:
    assert answer["jsonClass"] == "OnError"
    code: str = answer["x"]["code"]
    return code


# ---------------------------------------------------------------- how many, how often, how long
def test_one_subscriber_too_many_is_asked_to_come_back_and_gets_in_when_there_is_room() -> None:
    with (
        Gateway(Numbers(100), ANYWHERE, limits=Limits(max_subscribers=2)) as gateway,
        Peer(gateway.endpoint) as one,
        Peer(gateway.endpoint) as two,
        Peer(gateway.endpoint) as three,
    ):
        one.subscribe()
        two.subscribe_plainly()
        assert code_of(three.subscribe()) == "BUSY"
        assert "no more can be" in three.subscribe_plainly()["message"]
        with reading(gateway.endpoint, patience=20) as patient:
            eventually(lambda: counted(gateway, "too many subscribers") >= 3)
            assert one.ask({"jsonClass": "Subscribe", "cancel": True})["jsonClass"] == "OnComplete"
            assert patient.wait().items == Numbers().values(0, 100)


def test_a_peer_that_asks_too_often_is_told_to_slow_down_and_others_are_not() -> None:
    with (
        Gateway(Numbers(), ANYWHERE, limits=Limits(requests_per_second=100)) as gateway,
        Peer(gateway.endpoint) as hasty,
        Peer(gateway.endpoint) as calm,
    ):
        hasty.subscribe()
        calm.subscribe()

        def hurry() -> bool:
            for _ in range(100):
                hasty.grant(limit=10)
            return counted(gateway, "too many requests") >= 300

        eventually(hurry)
        answer = hasty.hear()
        assert answer is not None
        assert code_of(answer) == "BUSY"
        assert answer["x"]["retry"] > 0
        calm.grant(limit=10)
        assert calm.hear(0.2) is None
        assert session_of(gateway, limit=10, repeats=0)


def test_peers_without_a_subscription_have_one_budget_together() -> None:
    with Gateway(Numbers(), ANYWHERE, limits=Limits(requests_per_second=50)) as gateway:
        peers = [Peer(gateway.endpoint) for _ in range(4)]

        def hurry() -> bool:
            for _ in range(10):
                for peer in peers:
                    peer.say({"jsonClass": "Next", "count": 1})
            return counted(gateway, "too many requests") >= 100

        eventually(hurry)
        for peer in peers:
            peer.__exit__()


def test_a_subscriber_that_was_told_to_slow_down_comes_back_and_loses_nothing() -> None:
    limits = Limits(requests_per_second=5)
    with Gateway(Numbers(3000), ANYWHERE, limits=limits) as gateway:
        # Far too small a window: every four records are a request.
        publisher = AquiferPublisher(gateway.endpoint, window=300, max_window=300)
        reader = Recorder.of(publisher, UNBOUNDED)
        assert reader.wait(100).items == Numbers().values(0, 3000)


def test_a_message_that_is_too_long_is_refused_and_one_beyond_all_bounds_ends_the_connection() -> None:
    with (
        Gateway(Numbers(100), ANYWHERE, limits=Limits(max_message=1000)) as gateway,
        Peer(gateway.endpoint) as peer,
    ):
        peer.subscribe()
        long = peer.ask(b'{"jsonClass":"Next","count":1,"pad":"' + b"x" * 1000 + b'"}')
        assert "the limit is 1000" in long["message"]
        before = counted(gateway, "oversized")
        peer.say(b"x" * 20_000)
        assert peer.hear(0.3) is None
        assert counted(gateway, "oversized") == before
        assert read(gateway.endpoint).wait().items == Numbers().values(0, 100)


def test_a_message_of_very_many_parts_does_no_harm() -> None:
    with Gateway(Numbers(100), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        peer.control.send_multipart([b"x"] * 50_000)
        eventually(lambda: sum(gateway.status()["counters"].values()) >= 1)
        assert read(gateway.endpoint).wait().items == Numbers().values(0, 100)


# ---------------------------------------------------------------- those who do not read
def test_no_more_is_on_its_way_than_the_limits_allow_whatever_was_granted() -> None:
    for limits in (Limits(bytes_in_flight=100_000), Limits(frames_in_flight=5, max_frame=10_000)):
        with (
            Gateway(Numbers(width=1000), ANYWHERE, limits=limits) as gateway,
            Peer(gateway.endpoint) as greedy,
        ):
            greedy.subscribe(keep=False)
            greedy.join(hwm=1, tiny=True)
            greedy.grant(limit=UNBOUNDED, limitb=UNBOUNDED)
            eventually(lambda it=gateway: session_of(it)["in_flight"] > 40_000)
            stays(lambda it=gateway: session_of(it)["in_flight"] <= 120_000, seconds=0.3)


def test_the_credit_in_bytes_is_kept_to() -> None:
    with Gateway(Numbers(width=1000), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        peer.subscribe()
        peer.join()
        peer.grant(limit=UNBOUNDED, limitb=50_000)
        eventually(lambda: session_of(gateway)["bytes"] > 40_000)
        stays(lambda: session_of(gateway)["bytes"] <= 52_000, seconds=0.3)
        peer.grant(limit=UNBOUNDED, limitb=100_000)
        eventually(lambda: session_of(gateway)["bytes"] > 90_000)
        stays(lambda: session_of(gateway)["bytes"] <= 102_000, seconds=0.2)


class Greedy:
    """Peers that would fill the gateway's memory, if it let them; each is asked again and again to go on."""

    @staticmethod
    def grants_everything_and_reads_nothing(peer: Peer) -> Callable[[], None]:
        peer.subscribe(keep=False)
        peer.join(hwm=1, tiny=True)
        return lambda: peer.grant(limit=UNBOUNDED, limitb=UNBOUNDED)

    @staticmethod
    def says_that_it_has_read_what_it_has_not(peer: Peer) -> Callable[[], None]:
        peer.subscribe(keep=False, id="liar")
        peer.join(hwm=1, tiny=True)

        def lie() -> None:
            status = peer.ask({"jsonClass": "Subscribe", "x": {"v": 1, "probe": True}})["x"]["status"]
            sent = next(one["next"] for one in status["subscribers"] if one["id"] == "liar")
            peer.grant(limit=UNBOUNDED, limitb=UNBOUNDED, ack=sent, got=sent)

        return lie

    @staticmethod
    def wants_everybodys_records_and_reads_none(peer: Peer) -> Callable[[], None]:
        peer.subscribe(keep=False)
        peer.join(b"", hwm=1, tiny=True)
        return lambda: None

    @staticmethod
    def asks_for_one_plain_batch_after_the_other_and_reads_none(peer: Peer) -> Callable[[], None]:
        peer.subscribe_plainly()
        peer.join(b"", hwm=1, tiny=True)

        def ask() -> None:
            for _ in range(20):
                peer.say({"jsonClass": "Next", "count": UNBOUNDED})
            while peer.control.poll(0):
                peer.control.recv_multipart()

        return ask

    @staticmethod
    def talks_and_does_not_listen(peer: Peer) -> Callable[[], None]:
        deaf = peer.context.socket(zmq.DEALER)
        deaf.setsockopt(zmq.RCVHWM, 1)
        deaf.setsockopt(zmq.RCVBUF, 4096)
        deaf.connect(peer.endpoint)

        def talk() -> None:
            for _ in range(200):
                deaf.send_multipart([b"", b'{"jsonClass":"Nonsense","text":"' + b"x" * 200 + b'"}'])

        return talk


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [name for name in vars(Greedy) if not name.startswith("_")])
def test_the_memory_of_the_gateway_stays_as_it_is_beside_a_peer_that(hostile: str) -> None:
    limits = "Limits(frames_in_flight=32, bytes_in_flight=2_000_000, plain_batch=1000)"
    with (
        GatewayProcess(
            f"Numbers(width=1000), ANYWHERE, journal=MemoryJournal(max_bytes=4_000_000), limits={limits}"
        ) as gateway,
        Peer(gateway.endpoint) as peer,
    ):
        honest = Counting()
        go_on = getattr(Greedy, hostile)(peer)
        AquiferPublisher(gateway.endpoint).subscribe(honest)
        eventually(lambda: go_on() or honest.count >= 20_000)
        before = gateway.memory_mib()
        eventually(lambda: go_on() or honest.count >= 220_000, timeout=100)
        after = gateway.memory_mib()
        honest.cancel()
        # 200 MB went by.
        assert after - before < 25, f"{before} MiB before, {after} MiB after"


# ---------------------------------------------------------------- those who repeat themselves
def test_a_repeated_subscribe_changes_nothing() -> None:
    with Gateway(Numbers(100), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        gateway.join()
        first = peer.subscribe(id="me")
        peer.join()
        peer.grant(limit=50)
        assert peer.frame().count == 50
        again = peer.subscribe(id="me")
        assert again["x"]["topic"] == first["x"]["topic"]
        assert len(gateway.status()["subscribers"]) == 1
        assert counted(gateway, "repeated Subscribe") == 1
        peer.grant(limit=100)
        frame = peer.frame()
        assert (frame.first, frame.count) == (50, 50)


def test_a_subscribe_that_is_replayed_after_the_end_opens_nothing() -> None:
    with Gateway(Numbers(100), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        peer.subscribe(id="me")
        peer.ask({"jsonClass": "Subscribe", "cancel": True})
        assert code_of(peer.subscribe(id="me")) == "SESSION"
        assert gateway.status()["subscribers"] == []
        assert counted(gateway, "replayed Subscribe") == 1


def test_an_acknowledgement_that_comes_late_takes_nothing_back() -> None:
    with Gateway(Numbers(100), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        eventually(lambda: gateway.status()["head"] == 100)  # all of it goes into one frame
        peer.subscribe()
        peer.join()
        peer.grant(limit=100)
        assert peer.frame().count == 100
        for acknowledged in (60, 20, 40, 80, 0):
            peer.grant(limit=100, ack=acknowledged)
        eventually(lambda: session_of(gateway)["acknowledged"] == 80)
        stays(lambda: session_of(gateway)["acknowledged"] == 80, seconds=0.1)


def test_an_acknowledgement_of_what_was_never_sent_is_refused() -> None:
    with Gateway(Numbers(100), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        peer.subscribe()
        peer.grant(limit=0, ack=50)
        answer = peer.hear()
        assert answer is not None
        assert code_of(answer) == "BAD"
        assert session_of(gateway)["acknowledged"] == 0


def test_a_goodbye_for_somebody_else_is_not_possible() -> None:
    with (
        Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=1000)) as gateway,
        Peer(gateway.endpoint) as stranger,
        reading(gateway.endpoint, 100, id="me") as me,
    ):
        eventually(has(me, 100))
        stranger.ask({"jsonClass": "Subscribe", "cancel": True, "x": {"v": 1, "id": "me"}})
        stranger.ask({"jsonClass": "Complete", "complete": True})
        me.request(100)
        eventually(has(me, 200))
        assert session_of(gateway)["id"] == "me"


def test_a_refused_subscriber_is_told_why() -> None:
    with Gateway(Numbers(10), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        for terms, complaint in (
            ({"v": 2}, "version"),
            ({"from": "middle"}, "'earliest' or 'latest'"),
            ({"from": -1}, "not available"),
            ({"to": -1}, "never negative"),
            ({"lease": 0}, "at least 1"),
            ({"fmt": ["xml"]}, "formats"),
        ):
            answer = peer.subscribe(**terms)
            assert complaint in answer["message"], answer
        assert gateway.status()["subscribers"] == []


def test_only_so_many_durable_subscribers_are_remembered() -> None:
    limits = Limits(max_durable=2)
    with Gateway(Numbers(100), ANYWHERE, limits=limits) as gateway:
        gateway.join()
        for name in ("one", "two"):
            with Peer(gateway.endpoint) as peer:
                peer.subscribe(id=name)
                peer.ask({"jsonClass": "Subscribe", "cancel": True})
        eventually(lambda: len(gateway.status()["absent"]) == 2)
        with Peer(gateway.endpoint) as peer:
            assert peer.subscribe(id="three")["x"]["code"] == "BUSY"
            # Who is known may come back.
            assert peer.subscribe(id="two")["jsonClass"] == "OnSubscribe"
