"""A gateway for other machines: the traffic is encrypted, and only clients whose key is listed get in.

At the command line, `penstock gateway --keygen PATH` makes a pair of keys. The public keys of the clients go
into a folder of the gateway, and the public key of the gateway goes to the clients.
"""

import logging
import tempfile
from pathlib import Path

from penstock.aquifer import (
    AquiferPublisher,
    CurveClient,
    CurveServer,
    Gateway,
    GatewayUnreachable,
    Refused,
    generate_keys,
    load_keys,
    save_keys,
)
from penstock.streams import Flux


def main() -> None:
    # The gateway logs a warning for each client that it refuses, with its key.
    logging.getLogger("penstock.aquifer").setLevel(logging.ERROR)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clients").mkdir()
        save_keys(generate_keys(), folder / "gateway")  # gateway.key and gateway.pub
        save_keys(generate_keys(), folder / "alice")
        (folder / "clients" / "alice.pub").write_bytes((folder / "alice.pub").read_bytes())

        server = CurveServer.load(folder / "gateway", folder / "clients")
        alice = CurveClient(load_keys(folder / "alice"), server.keys.public)
        mallory = CurveClient(generate_keys(), server.keys.public)

        # The gateway reads the folder again when it changes.
        source = Flux.just("one", "two", "three")
        # control=None: there is no endpoint without encryption. On a real machine, listen at "tcp://*:5556".
        with Gateway(
            source, control=None, curve=server, curve_control="tcp://127.0.0.1:0", codec="text"
        ) as gateway:
            endpoint = gateway.curve_endpoint
            print("alice:", list(AquiferPublisher(endpoint, curve=alice, codec="text").flux()))
            try:
                list(AquiferPublisher(endpoint, curve=mallory).flux())
            except Refused:
                print("mallory: refused, the key is not on the list")
            try:
                list(AquiferPublisher(endpoint, patience=1).flux())
            except GatewayUnreachable:
                print("without a key: nobody answers")


if __name__ == "__main__":
    main()
