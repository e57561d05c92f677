"""Endpoints: what is right is read and written back, what is wrong is told with an example."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import endpoint as endpoints
from penstock.endpoint import Endpoint

names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.[a-z][a-z0-9]{0,5}){0,3}", fullmatch=True)
streams = st.one_of(st.just(""), st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True))
hosts = st.one_of(st.just("*"), st.ip_addresses().map(str), names)


@given(host=hosts, port=st.integers(0, 65535), stream=streams)
def test_what_is_written_is_read_back(host: str, port: int, stream: str) -> None:
    endpoint = Endpoint(host, port, stream)

    assert Endpoint.parse(str(endpoint)) == endpoint


pieces = st.sampled_from(
    ["tcp", "://", ":", "[", "]", "*", "::1", "127.0.0.1", "a b", "%", "5556", "99999", "/"]
)


@given(text=st.one_of(st.text(), st.lists(pieces).map("".join), st.text().map("tcp://{}:1".format)))
def test_any_text_is_an_endpoint_or_a_value_error_with_an_example(text: str) -> None:
    problem = ""
    try:
        endpoint = Endpoint.parse(text)
        assert Endpoint.parse(str(endpoint)) == endpoint
    except ValueError as error:
        problem = str(error)

    assert not problem or problem.endswith("Write one like tcp://127.0.0.1:5556")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:5556", "127.0.0.1", 5556),
        ("tcp://localhost:1", "localhost", 1),
        ("tcp://*:5556", "*", 5556),
        ("tcp://*:*", "*", 0),
        ("tcp://127.0.0.1:0", "127.0.0.1", 0),
        ("tcp://[::1]:65535", "::1", 65535),
        ("tcp://[0:0:0:0:0:0:0:1]:*", "::1", 0),
        ("tcp://[fe80::1%eth0]:5556", "fe80::1%eth0", 5556),
        ("tcp://gateway_1.my-net.example:5556", "gateway_1.my-net.example", 5556),
    ],
)
def test_right_ones(text: str, host: str, port: int) -> None:
    assert Endpoint.parse(text) == Endpoint(host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "tcp://"),
        ("127.0.0.1:5556", "tcp://"),
        ("ipc:///tmp/gateway", "only supported transport"),
        ("TCP://127.0.0.1:5556", "only supported transport"),
        ("tcp://127.0.0.1", "port is missing"),
        ("tcp://127.0.0.1:", "port is missing"),
        ("tcp://[::1]", "port is missing"),
        ("tcp://[::1]5556", "comes a colon"),
        ("tcp://127.0.0.1:65536", "65535"),
        ("tcp://127.0.0.1:-1", "65535"),
        ("tcp://127.0.0.1:http", "65535"),
        ("tcp://127.0.0.1:5556/", "name of a stream"),
        ("tcp://127.0.0.1:5556/-orders", "name of a stream"),
        ("tcp://127.0.0.1:5556/a b", "name of a stream"),
        ("tcp://127.0.0.1:5556/orders/2026", "name of a stream"),
        ("tcp://127.0.0.1:5556/" + "o" * 129, "name of a stream"),
        ("tcp://127.0.0.1/orders", "port is missing"),
        ("tcp://127.0.0.1:٣", "65535"),
        ("tcp://127.0.0.1:" + "9" * 5000, "65535"),
        ("tcp://:5556", "host is missing"),
        ("tcp://my host:5556", "name of a host"),
        ("tcp:// 127.0.0.1:5556", "name of a host"),
        ("tcp://host\n:5556", "name of a host"),
        ("tcp://eth0;127.0.0.1:5556", "name of a host"),
        ("tcp://-host:5556", "name of a host"),
        ("tcp://" + "a" * 254 + ":5556", "name of a host"),
        ("tcp://127.0.0.256:5556", "256"),
        ("tcp://127.0.1:5556", "Expected 4 octets"),
        ("tcp://::1:5556", "brackets"),
        ("tcp://[::1:5556", "brackets"),
        ("tcp://[127.0.0.1]:5556", "brackets"),
        ("tcp://[::g]:5556", "::g"),
        ("tcp://[fe80::1%a b]:5556", "interface"),
    ],
)
def test_wrong_ones_say_what_is_wrong_and_show_a_right_one(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="is not an endpoint") as caught:
        Endpoint.parse(text)

    assert why in str(caught.value)
    assert "tcp://127.0.0.1:5556" in str(caught.value)


def test_a_socket_hears_nothing_of_the_stream() -> None:
    endpoint = Endpoint.parse("tcp://[::1]:5556/orders")

    assert (endpoint.stream, endpoint.address) == ("orders", "tcp://[::1]:5556")


def test_where_somebody_listens_there_is_no_stream_to_name() -> None:
    assert Endpoint.parse_address("tcp://127.0.0.1:9000").port == 9000
    with pytest.raises(ValueError, match="ends with the port"):
        Endpoint.parse_address("tcp://127.0.0.1:9000/orders")


@pytest.mark.parametrize(("host", "port"), [("", 1), ("a b", 1), ("host", -1), ("host", 65536)])
def test_a_wrong_one_cannot_be_made_by_hand_either(host: str, port: int) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        Endpoint(host, port)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("localhost", True),
        ("LocalHost", True),
        ("::1", True),
        ("*", False),
        ("0.0.0.0", False),
        ("::", False),
        ("128.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("localhost.example", False),
        ("127.example", False),
        ("eth0", False),
    ],
)
def test_which_hosts_only_this_machine_can_reach(host: str, loopback: bool) -> None:
    assert Endpoint(host, 5556).is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("tcp://127.0.0.1:5556", True),
        ("tcp://gateway:5556", True),
        ("tcp://gateway:0", False),
        ("tcp://*:5556", False),
        ("tcp://0.0.0.0:5556", False),
        ("tcp://[::]:5556", False),
    ],
)
def test_to_which_one_can_connect(text: str, one: bool) -> None:
    assert Endpoint.parse(text).is_one_place is one


def test_which_need_ipv6() -> None:
    assert Endpoint("::1", 1).is_ipv6
    assert not Endpoint("127.0.0.1", 1).is_ipv6


def test_the_examples_run_as_printed() -> None:
    assert doctest.testmod(endpoints).failed == 0
