"""Control messages: the document byte for byte, leniency with what others send, and what we add in ``x``."""

from __future__ import annotations

import contextlib
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.messages import (
    Complete,
    CompleteFields,
    Control,
    Error,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnErrorFields,
    OnNext,
    OnNextFields,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    decode,
    demand,
    encode,
    extension,
)
from penstock.spec import UNBOUNDED

DOCUMENT: list[tuple[Control, bytes]] = [
    (Subscribe(cancel=False), b'{"jsonClass":"Subscribe","cancel":false}'),
    (OnSubscribe(2**63 - 1, 5557), b'{"jsonClass":"OnSubscribe","size":9223372036854775807,"port":5557}'),
    (Next(1000), b'{"jsonClass":"Next","count":1000}'),
    (OnNext(1000), b'{"jsonClass":"OnNext","count":1000}'),
    (OnError("stuffed"), b'{"jsonClass":"OnError","message":"stuffed"}'),
    (OnComplete(complete=True), b'{"jsonClass":"OnComplete","complete":true}'),
]


@pytest.mark.parametrize(("message", "sample"), DOCUMENT, ids=lambda value: type(value).__name__)
def test_the_samples_of_the_document_byte_for_byte(message: Control, sample: bytes) -> None:
    assert encode(message) == sample
    assert decode(sample) == message


@pytest.mark.parametrize(("message", "sample"), DOCUMENT, ids=lambda value: type(value).__name__)
def test_unknown_fields_and_the_order_of_fields_do_not_matter(message: Control, sample: bytes) -> None:
    fields = json.loads(sample)
    turned = {"unknown": {"nested": [1, None]}, **dict(reversed(fields.items())), "später": "ü"}
    assert decode(json.dumps(turned, indent=1).encode()) == message


@pytest.mark.parametrize("x", [None, True, 7, 1.5, "x", [], [1, {"limit": 2}], {}, {"foreign": 1}])
@pytest.mark.parametrize(("message", "sample"), DOCUMENT, ids=lambda value: type(value).__name__)
def test_an_x_of_somebody_else_is_ignored(message: Control, sample: bytes, x: Any) -> None:
    got = decode(json.dumps({**json.loads(sample), "x": x}).encode())
    assert type(got) is type(message)
    known = extension(got.x)  # type: ignore[union-attr]
    assert known is None or known == type(known)()


def test_what_the_original_implementation_adds_is_understood() -> None:
    assert decode(b'{"jsonClass":"Subscribe","cancel":false,"count":9223372036854775807}') == Subscribe(
        cancel=False, count=UNBOUNDED
    )
    resend = decode(b'{"jsonClass":"OnError","message":"resending data","recoverable":true}')
    assert resend == OnError("resending data", recoverable=True)
    assert decode(b'{"jsonClass":"Error","message":"3 missing"}') == Error("3 missing")
    assert decode(b'{"jsonClass":"Complete","complete":true}') == Complete(complete=True)
    assert decode(b'{"jsonClass":"Subscribe"}') == Subscribe(cancel=False)


@pytest.mark.parametrize("count", [2**63 - 1, 2**63, 2**64, 9223372036854776000, 2**53 + 1, 10**400])
def test_counts_that_javascript_cannot_hold_are_unbounded(count: int) -> None:
    message = decode(b'{"jsonClass":"Next","count":%d}' % count)
    assert isinstance(message, Next)
    assert demand(message.count) == UNBOUNDED


@pytest.mark.parametrize("count", [-(2**70), -1, 0, 1, 1000, 2**53])
def test_other_counts_mean_what_they_say(count: int) -> None:
    assert demand(count) == count


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"\0",
        b"null",
        b"[]",
        b"{}",
        b'"Next"',
        b'{"count":1000}',
        b'{"jsonClass":null,"count":1000}',
        b'{"jsonClass":7,"count":1000}',
        b'{"jsonClass":"OnSomething","count":1000}',
        b'{"jsonClass":"next","count":1000}',
        b'{"jsonClass":"Next"}',
        b'{"jsonClass":"Next","count":"1000"}',
        b'{"jsonClass":"Next","count":1.5}',
        b'{"jsonClass":"Next","count":1e3}',
        b'{"jsonClass":"Next","count":true}',
        b'{"jsonClass":"Next","count":null}',
        b'{"jsonClass":"Next","count":1' + b"0" * 5000 + b"}",
        b'{"jsonClass":"Next","count":1000',
        b'{"jsonClass":"Next","count":1000}}',
        b'{"jsonClass":"Subscribe","cancel":0}',
        b'{"jsonClass":"OnError","message":"\xff"}',
        b'{"jsonClass":"OnError","message":"\\ud800 alone"}',
        b'{"jsonClass":"Subscribe","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"jsonClass":"Subscribe","unknown":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
        b'{"jsonClass":"Next","count":1,"x":{"limit":"2"}}',
        b'{"jsonClass":"Next","count":1,"x":{"limit":2.0}}',
        b'{"jsonClass":"Subscribe","x":{"v":1,"fmt":"arrow"}}',
        '{"jsonClass":"Complete"}'.encode("utf-16"),
    ],
    ids=lambda data: repr(data[:48]),
)
def test_what_is_no_message_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not a control message"):
        decode(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_a_violation_at_worst(data: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        decode(data)


STUDIED = {
    SubscribeFields: {"v", "id", "from", "to", "epoch", "keep", "fmt", "lease"},
    OnSubscribeFields: {
        "v",
        "topic",
        "epoch",
        "first",
        "next",
        "head",
        "fmt",
        "ackevery",
        "maxframe",
        "lease",
    },
    NextFields: {"limit", "limitb", "ack"},
    OnNextFields: {"first", "head"},
    OnErrorFields: {"code", "first", "head", "epoch", "retry"},
    CompleteFields: {"end", "cancelled"},
}
"""The names of the wire extension as it was first written down; what came later is added to them."""


@pytest.mark.parametrize("kind", STUDIED)
def test_the_names_in_x_are_those_of_the_extension(kind: type) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert set(names) >= STUDIED[kind]
    assert all(name.isalpha() and name.islower() for name in names)
    assert "jsonClass" not in names, "a JVM peer would take it for a class of its own"


def test_what_an_extended_subscriber_says_on_the_wire() -> None:
    wishes = SubscribeFields(
        v=1, id="a", from_=5, to=9, epoch="e", keep=True, fmt=["msgpack"], lease=60_000, me="b", nth=1
    )
    assert encode(Subscribe(x=wishes)) == (
        b'{"jsonClass":"Subscribe","cancel":false,"x":{"v":1,"id":"a","from":5,"to":9,"epoch":"e",'
        b'"keep":true,"fmt":["msgpack"],"lease":60000,"me":"b","nth":1}}'
    )
    grant = NextFields(limit=4096, limitb=1 << 20, ack=0, got=7)
    assert encode(Next(4096, x=grant)) == (
        b'{"jsonClass":"Next","count":4096,"x":{"limit":4096,"limitb":1048576,"ack":0,"got":7}}'
    )
    assert decode(b'{"jsonClass":"Subscribe","x":{"v":1,"from":"latest"}}') == Subscribe(
        x=SubscribeFields(v=1, from_="latest")
    )


def test_no_other_classes_exist_than_the_six_and_the_two_of_the_original() -> None:
    assert {kind.__name__ for kind in Control.__args__} == {
        *("Subscribe", "OnSubscribe", "Next", "OnNext", "OnError", "OnComplete"),
        *("Error", "Complete"),
    }


whole = st.integers(-(2**70), 2**70)
absent: st.SearchStrategy[Any] = st.just(msgspec.UNSET)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def optional(kind: type, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A struct of x with any of its numbers, and any of those that are given."""
    numbers = [field.name for field in msgspec.structs.fields(kind) if int in get_args(field.type)]
    values = {name: absent | values for name, values in {**dict.fromkeys(numbers, whole), **more}.items()}
    return st.builds(kind, **values)


wishes = optional(
    SubscribeFields,
    id=text,
    from_=whole | text,
    epoch=text,
    keep=st.booleans(),
    fmt=st.lists(text, max_size=3),
    probe=st.booleans(),
    me=text,
)
session = optional(
    OnSubscribeFields,
    topic=text,
    epoch=text,
    fmt=text,
    status=st.dictionaries(text, whole | text, max_size=3).map(
        lambda it: msgspec.Raw(msgspec.json.encode(it))
    ),
)
messages: st.SearchStrategy[Control] = st.one_of(
    st.builds(Subscribe, cancel=st.booleans(), count=absent | whole, x=absent | wishes),
    st.builds(OnSubscribe, size=whole, port=whole, x=absent | session),
    st.builds(Next, count=whole, x=absent | optional(NextFields)),
    st.builds(OnNext, count=whole, x=absent | optional(OnNextFields)),
    st.builds(
        OnError,
        message=text,
        recoverable=absent | st.booleans(),
        x=absent | optional(OnErrorFields, code=text, epoch=text),
    ),
    st.builds(
        OnComplete, complete=st.booleans(), x=absent | optional(CompleteFields, cancelled=st.booleans())
    ),
    st.builds(Error, message=text),
    st.builds(Complete, complete=st.booleans()),
)


@settings(deadline=None)
@given(messages)
def test_every_message_comes_back_as_it_was(message: Control) -> None:
    data = encode(message)
    assert decode(data) == message
    assert encode(decode(data)) == data
    assert json.loads(data)["jsonClass"] == type(message).__name__
