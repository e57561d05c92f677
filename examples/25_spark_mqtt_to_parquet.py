"""MQTT to Parquet: a sensor publishes all the time, the pipeline is restarted, and no reading is missing.

The pipeline subscribes with QoS 2. While it is away, the broker keeps the messages in its session. The
example starts a Mosquitto of its own; ``apt-get install mosquitto`` brings it.
"""

import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import mqtt5

from penstock.spark import Pipeline, RunningPipeline, session

SCHEMA = "number long, celsius double"


class Sensor(threading.Thread):
    """Publishes numbered readings, and counts those that the broker has acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.published = 0
        self.changed = threading.Condition()
        self.stopped = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = bytearray()
        self._send(mqtt5.ConnectPacket("sensor", clean_start=True))

    def run(self) -> None:
        with self._socket:
            while not self.stopped.wait(0.002):
                reading = {"number": self.published, "celsius": 20.5 + self.published % 7}
                identity = self.published % 65_535 + 1
                qos = mqtt5.QoS.EXACTLY_ONCE
                self._send(
                    mqtt5.PublishPacket(
                        "rooms/attic", json.dumps(reading).encode(), qos=qos, packet_id=identity
                    )
                )
                self._send(mqtt5.PubRelPacket(identity))
                with self.changed:
                    self.published += 1
                    self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many readings are published."""
        with self.changed:
            self.changed.wait_for(lambda: self.published >= count)

    def _send(self, packet: mqtt5.Packet) -> None:
        """Send a packet, and wait for its answer."""
        self._socket.sendall(packet.write())
        while True:
            try:
                _, size = mqtt5.read(memoryview(bytes(self._answers)))
            except IndexError:
                self._answers += self._socket.recv(1000)
            else:
                del self._answers[:size]
                return


def wait_for(running: RunningPipeline, records: int) -> None:
    """Wait until so many records are in the files."""
    while not running.wait(0.2):
        progress = running.progress()
        if progress is not None and progress.records >= records:
            return


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    program = shutil.which("mosquitto")
    if program is None:
        raise SystemExit("this example needs a broker: apt-get install mosquitto")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
    (folder / "mosquitto.conf").write_text(settings)
    broker = subprocess.Popen([program, "-c", folder / "mosquitto.conf"], stderr=subprocess.DEVNULL)
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.05)  # It is starting.
    tables, checkpoint = folder / "tables", folder / "checkpoint"
    spark = session(master="local[2]")
    pipeline = Pipeline(f"mqtt://127.0.0.1:{port}/rooms/+?qos=2", schema=SCHEMA).into("parquet", path=tables)
    sensor = Sensor(port)
    sensor.start()
    try:
        with pipeline.start(spark=spark, checkpoint=checkpoint) as running:
            wait_for(running, 500)
        before = spark.read.parquet(str(tables)).count()
        print("stopped, and the sensor goes on")
        sensor.wait_for(sensor.published + 500)

        with pipeline.start(spark=spark, checkpoint=checkpoint) as running:
            wait_for(running, 500)
            sensor.stopped.set()
            sensor.join()
            rows = spark.read.parquet(str(tables))
            while rows.count() == before or rows.agg({"number": "max"}).first()[0] < sensor.published - 1:
                running.wait(0.2)
                rows = spark.read.parquet(str(tables))
    finally:
        sensor.stopped.set()
        broker.terminate()
        broker.wait()

    numbers = sorted(row.number for row in rows.select("number").collect())
    print("at least 1000 readings:", len(numbers) >= 1000)
    print("every reading once, without a gap:", numbers == list(range(numbers[0], sensor.published)))
    spark.stop()


if __name__ == "__main__":
    main()
