"""What a feed and a journal share of Kafka: where the brokers are, how to log in, and which errors pass.

The client library is imported when it is first needed: :func:`require_kafka` says how to install it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, unquote_plus

from penstock.secret_file import read_secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = [
    "KAFKA_PARAMETERS",
    "KAFKA_SCHEMES",
    "BrokerErrors",
    "KafkaAddress",
    "broker_error",
    "client_settings",
    "is_kafka_url",
    "is_refusal",
    "require_kafka",
]

KAFKA_SCHEMES: Final[Mapping[str, bool]] = MappingProxyType({"kafka": False, "kafkas": True})
"""The schemes of URLs, and whether each means TLS."""
KAFKA_PARAMETERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sasl": "how the user and the password are sent: PLAIN (the default), SCRAM-SHA-256 or SCRAM-SHA-512",
        "ca": "a file with the certificates to trust, in PEM",
        "certificate": "the file with our own certificate, if the broker asks for one",
        "key": "the file with its private key",
        "password-file": "a file with the password of the user in the URL",
        "config": "a file with properties of librdkafka, one NAME=VALUE to a line, for instance with "
        "sasl.password",
    }
)
"""The parameters of a URL that say how to connect, each with its help."""

_PORT: Final = 9092
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FILES: Final = {
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
}
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Where a topic is, and who asks for it."""

    brokers: tuple[str, ...]
    """``host:port`` of one or more brokers; the client learns of the others."""
    topic: str
    settings: Mapping[str, str] = field(default_factory=lambda: _NO_SETTINGS, repr=False)
    """Properties of librdkafka for the connection; there may be a password among them."""

    @classmethod
    def of(cls, rest: str, *, tls: bool = False, parameters: Mapping[str, str] = _NO_SETTINGS) -> Self:
        """``USER:PASSWORD@HOST:PORT,HOST:PORT/TOPIC``; ValueError, without the password, if it is not."""
        where, _, topic = rest.partition("/")
        login, at, hosts = where.rpartition("@")
        brokers = tuple(_broker(each) for each in hosts.split(","))
        if not topic:
            raise ValueError("there is no topic; write kafka://HOST:PORT/TOPIC")
        settings = dict(_properties(parameters)) if "config" in parameters else {}
        if at:
            user, _, password = login.partition(":")
            settings["sasl.username"] = unquote(user)
            if password:
                settings["sasl.password"] = unquote(password)
        if "password-file" in parameters:
            settings["sasl.password"] = _text_of(parameters, "password-file").strip()
        settings.update(_security(settings, tls, parameters))
        return cls(brokers, unquote(topic), MappingProxyType(settings))

    @classmethod
    def of_url(cls, url: str) -> Self:
        """``kafka://HOST:PORT/TOPIC?ca=FILE``; ValueError, without a password, if it is not."""
        scheme, _, rest = url.partition("://")
        rest, _, query = rest.partition("?")
        parameters: dict[str, str] = {}
        for each in filter(None, query.split("&")):
            name, equals, value = each.partition("=")
            if not equals or name not in KAFKA_PARAMETERS:
                raise ValueError(
                    f"{name!r} is not known; after the ? there can be {', '.join(KAFKA_PARAMETERS)}"
                )
            parameters[name] = unquote_plus(value)
        return cls.of(rest, tls=KAFKA_SCHEMES[scheme], parameters=parameters)

    @classmethod
    def given(cls, brokers: str, topic: str, settings: Mapping[str, str]) -> Self:
        """The brokers as ``HOST:PORT,HOST:PORT``, and properties of librdkafka for the connection."""
        if not isinstance(brokers, str) or not isinstance(topic, str) or not topic:
            raise ValueError("brokers and topic are texts that are not empty: 'localhost:9092' and 'orders'")
        return cls(
            tuple(_broker(each) for each in brokers.split(",")), topic, MappingProxyType(dict(settings))
        )

    @property
    def is_secure(self) -> bool:
        """Whether the connection is over TLS."""
        return self.settings.get("security.protocol", "").upper().endswith("SSL")

    @property
    def shown(self) -> str:
        """The brokers and the topic, for messages."""
        return f"{self.topic} at {','.join(self.brokers)}"


class BrokerErrors:
    """Called by a client for errors that belong to no request: a broker is down, a password is wrong."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """The last one, in words."""
        self.refused: str | None = None
        """Why no broker will ever let us in, if so."""
        self.all_down = False
        """Whether the client has lost every broker."""

    def __call__(self, error: KafkaError) -> None:
        """Note an error."""
        if is_refusal(error):
            self.refused = error.str()
        elif error.code() == error._ALL_BROKERS_DOWN:
            self.all_down = True
        else:
            self.reason = error.str()

    def about(self, error: KafkaError) -> str:
        """Why a request has failed: what was noted says more than that there was no answer."""
        return self.reason or error.str()


def client_settings(
    address: KafkaAddress, errors: BrokerErrors, **settings: str | int | float | bool
) -> dict[str, Any]:
    """The settings of a client, which reports its errors there; ``_`` stands for a dot."""
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return {
        "client.id": "penstock",
        # What is wrong is told through the errors, once, and not written to standard error as well.
        "log_level": 0,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1000,
        "socket.connection.setup.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 30_000,
        **address.settings,
        "bootstrap.servers": ",".join(address.brokers),
        "error_cb": errors,
        **own,
    }


def is_refusal(error: KafkaError) -> bool:
    """Whether the broker does not let us do this, and waiting does not help."""
    return error.code() in (
        error._AUTHENTICATION,
        error.SASL_AUTHENTICATION_FAILED,
        error.UNSUPPORTED_SASL_MECHANISM,
        error.TOPIC_AUTHORIZATION_FAILED,
        error.GROUP_AUTHORIZATION_FAILED,
        error.CLUSTER_AUTHORIZATION_FAILED,
        error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def broker_error(error: BaseException) -> KafkaError:
    """The error in an exception of the client.

    A fatal one is raised while the client calls its callbacks. If there are more to call, Python objects to
    that with a SystemError, which has it as its cause.
    """
    from confluent_kafka import KafkaError

    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    found = error.args[0] if error.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def is_kafka_url(text: str) -> bool:
    """Whether this is the URL of a topic."""
    return text.partition("://")[0] in KAFKA_SCHEMES and "://" in text


def require_kafka(what: str) -> None:
    """ModuleNotFoundError with one sentence if the client library is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what} need confluent-kafka: pip install 'penstock-streams[kafka]'", name="confluent_kafka"
        ) from error


def _broker(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is not a broker; write HOST:PORT, and a comma between several")
    return f"{host}:{port}"


def _text_of(parameters: Mapping[str, str], name: str) -> str:
    path = parameters[name]
    try:
        return read_secret(path).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{name}={path} cannot be read: {reason}") from None


def _properties(parameters: Mapping[str, str]) -> Mapping[str, str]:
    lines = _text_of(parameters, "config").splitlines()
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if not name.strip() or name.strip().startswith("#"):
            continue
        if not equals:
            # The line may hold a password.
            raise ValueError(f"config={parameters['config']}: line {number} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _security(settings: Mapping[str, str], tls: bool, parameters: Mapping[str, str]) -> dict[str, str]:
    made = {name: parameters[short] for short, name in _FILES.items() if short in parameters}
    for path in made.values():
        if not Path(path).is_file():
            raise ValueError(f"there is no file {path}")
    if made and not tls:
        raise ValueError("ca, certificate and key are for TLS: write kafkas://")
    if "sasl" in parameters:
        if parameters["sasl"] not in _MECHANISMS:
            raise ValueError(f"sasl={parameters['sasl']} is not known; write {', '.join(_MECHANISMS)}")
        made["sasl.mechanism"] = parameters["sasl"]
    has_login = "sasl.username" in settings or "sasl" in parameters
    if has_login:
        made.setdefault("sasl.mechanism", settings.get("sasl.mechanism", "PLAIN"))
    if has_login or tls:
        made["security.protocol"] = ("SASL_" if has_login else "") + ("SSL" if tls else "PLAINTEXT")
    return made
