"""Where records come from: a feed for each URL scheme, for gateways, pipelines and the command line alike.

::

    from penstock import feeds
    from penstock.aquifer import Gateway, SqliteJournal

    feed = feeds.open("file:app.log", feeds.FeedOptions(follow=True))
    with feed, Gateway(feed, journal=SqliteJournal("app.db")) as gateway:
        gateway.join()

The lines of a feed are read as they are asked for: while the gateway has no space, a pipe fills up, a socket
is not read, and the sender waits.

A scheme of your own is a :class:`Scheme` and a :class:`Feed`; :func:`register` adds it to a program, an entry
point of the group ``penstock.feeds`` to every program that has your package.
"""

from penstock.backoff import Backoff
from penstock.bad_reasons import BadReason
from penstock.codec_names import CODECS
from penstock.delivery import BadRecord, ConnectionMeter, Delivery, FeedConnections, FeedState, SenderFigures
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import (
    BadFeed,
    Feed,
    FeedError,
    FeedOptions,
    FeedUnavailable,
    FileFormat,
    Restart,
    UnknownScheme,
)
from penstock.feeds.http_listener import ListenerAddress
from penstock.feeds.kafka_topic import RecordsLost
from penstock.feeds.line_sender import LineSender, SendingFailed
from penstock.feeds.lines import (
    BadLines,
    Decode,
    ElementDecoder,
    LinePublisher,
    LineReader,
    LineSplitter,
    LineTooLong,
    OnBadLine,
    decoder,
)
from penstock.feeds.registry import FeedAddress, FeedUrl, Opener, Scheme, known_schemes, open, register
from penstock.feeds.rendezvous import FeedClosed
from penstock.feeds.replay import DeadLetter, Replacement, ReplayReport, edited_letters, home_of, replay
from penstock.feeds.schemes.directory import DirectoryFeed
from penstock.feeds.schemes.file import FileFeed
from penstock.feeds.schemes.http import HttpFeed, ResponseCut
from penstock.feeds.schemes.kafka import KafkaFeed, KafkaSettings
from penstock.feeds.schemes.mqtt import MqttFeed, MqttSettings
from penstock.feeds.schemes.process import ProcessFeed, ProgramFailed, UnixFeed
from penstock.feeds.schemes.redis import RedisFeed, RedisSettings
from penstock.feeds.schemes.sse import EventFeed
from penstock.feeds.schemes.stdin import StdinFeed
from penstock.feeds.schemes.tcp import TcpFeed, TcpListenFeed
from penstock.feeds.schemes.udp import UdpFeed
from penstock.feeds.schemes.webhook import WebhookFeed, WebhookSettings
from penstock.feeds.schemes.websocket import WebSocketFeed, WebSocketListenFeed
from penstock.feeds.server_access import ServerAccess
from penstock.kafka import KafkaAddress

__all__ = [
    "CODECS",
    "Backoff",
    "BadFeed",
    "BadLines",
    "BadReason",
    "BadRecord",
    "ConnectedFeed",
    "ConnectionLost",
    "ConnectionMeter",
    "DeadLetter",
    "Decode",
    "Delivery",
    "DirectoryFeed",
    "ElementDecoder",
    "EventFeed",
    "Feed",
    "FeedAddress",
    "FeedClosed",
    "FeedConnections",
    "FeedError",
    "FeedOptions",
    "FeedState",
    "FeedUnavailable",
    "FeedUrl",
    "FileFeed",
    "FileFormat",
    "HttpFeed",
    "KafkaAddress",
    "KafkaFeed",
    "KafkaSettings",
    "LinePublisher",
    "LineReader",
    "LineSender",
    "LineSplitter",
    "LineTooLong",
    "ListenerAddress",
    "MqttFeed",
    "MqttSettings",
    "OnBadLine",
    "Opener",
    "ProcessFeed",
    "ProgramFailed",
    "RecordsLost",
    "RedisFeed",
    "RedisSettings",
    "Replacement",
    "ReplayReport",
    "ResponseCut",
    "Restart",
    "Scheme",
    "SenderFigures",
    "SendingFailed",
    "ServerAccess",
    "StdinFeed",
    "TcpFeed",
    "TcpListenFeed",
    "UdpFeed",
    "UnixFeed",
    "UnknownScheme",
    "WebSocketFeed",
    "WebSocketListenFeed",
    "WebhookFeed",
    "WebhookSettings",
    "decoder",
    "edited_letters",
    "home_of",
    "known_schemes",
    "open",
    "register",
    "replay",
]
