"""Sends numbers to a Kafka topic in transactions until there is a file, and notes what was committed."""

import sys
import time
from pathlib import Path

from confluent_kafka import KafkaException, Producer

BATCH = 100


def main(address: str, topic: str, noted: str, enough: str, most: str = "1000000000") -> None:
    path = Path(noted)
    done = path.read_bytes().count(b"\n") if path.exists() else 0
    with path.open("ab", buffering=0) as note:
        while not Path(enough).exists() and done < int(most):
            producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "log_level": 0})
            try:
                producer.init_transactions(30)
                while not Path(enough).exists() and done < int(most):
                    numbers = range(done, done + BATCH)
                    producer.begin_transaction()
                    for number in numbers:
                        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7))
                    producer.commit_transaction(30)
                    note.write(b"".join(b"%d\n" % number for number in numbers))
                    done += BATCH
                    time.sleep(0.005)  # The pace of this sender.
            except KafkaException:
                time.sleep(0.1)  # Not committed, or not known: they are sent again by a new producer.


if __name__ == "__main__":
    main(*sys.argv[1:])
