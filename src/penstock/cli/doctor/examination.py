"""The examination: every check within its time, and what came out of it as a table or as JSON.

A check runs on a thread of its own, because anything may hang: a network disk, a name server, a driver. When
its time is over the examination goes on without it, and the thread ends with the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from penstock.cli.doctor import DoctorOptions
from penstock.cli.doctor.health import DoctorCheck, Finding, Health
from penstock.cli.doctor.machine import clock_check, descriptor_check, disk_check, port_check, python_check
from penstock.cli.doctor.packages import extras_checks, java_check, spark_check, zeromq_checks
from penstock.cli.errors import ExitCode
from penstock.cli.progress import ProgressBar
from penstock.cli.screen import Screen
from penstock.cli.style import Column, Tone, print_json, show_table, toned

__all__ = ["examine", "run_doctor"]

_TONES: Final = {Health.OK: Tone.GOOD, Health.MISSING: Tone.WARNING, Health.BAD: Tone.BAD}


def run_doctor(options: DoctorOptions) -> int:
    """Examine the machine; 1 if something that is installed does not work."""
    checks = [
        python_check(),
        *extras_checks(),
        *zeromq_checks(),
        java_check(),
        port_check(),
        descriptor_check(),
        disk_check(options.folder),
        clock_check(),
        *([] if options.no_spark else [spark_check()]),
    ]
    with ProgressBar("doctor", total=len(checks), unit="steps", hidden=options.json) as progress:
        findings = examine(checks, options.limit, lambda done, name: progress.update(done, name))
    broken = [finding for finding in findings if finding.verdict is Health.BAD]
    code = ExitCode.FAILED if broken else ExitCode.OK
    if options.json:
        print_json({"ok": not broken, "checks": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    if any(thread.name.startswith("penstock-doctor") for thread in threading.enumerate()):
        # A check hangs, perhaps inside of the operating system: exiting must not wait for it.
        sys.stdout.flush()
        os._exit(code)
    return code


def examine(
    checks: Sequence[DoctorCheck],
    limit: float,
    on_check: Callable[[int, str], object] = lambda done, name: None,
) -> list[Finding]:
    """Run the checks, one after the other, all of them within ``limit`` seconds."""
    end = time.monotonic() + limit
    findings = []
    for number, check in enumerate(checks):
        on_check(number, f"{check.name}{check.estimate}")
        findings.append(_within(check, min(check.limit, max(end - time.monotonic(), 0.0))))
    return findings


def _within(check: DoctorCheck, seconds: float) -> Finding:
    if seconds <= 0:
        return Finding(check.name, Health.BAD, "not tried: the time is over", "penstock doctor --limit 10m")
    results: list[Finding] = []

    def run() -> None:
        try:
            results.append(check.run(seconds))
        except BaseException as error:  # Also a library that exits when it is imported.
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            results.append(Finding(check.name, Health.BAD, text, check.remedy))

    thread = threading.Thread(target=run, name=f"penstock-doctor-{check.name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    return Finding(check.name, Health.BAD, f"no answer within {seconds:.0f} s", check.remedy)


def _show(findings: Sequence[Finding]) -> None:
    show_table(
        [Column("CHECK"), Column("VERDICT"), Column("WHAT WAS FOUND")],
        [
            [finding.name, toned(finding.verdict, _TONES[finding.verdict]), finding.detail]
            for finding in findings
        ],
    )
    remedies = [finding for finding in findings if finding.verdict is not Health.OK and finding.remedy]
    if not remedies:
        return
    screen = Screen(sys.stdout, must_be_read=True)
    screen.write("\nTo mend it:\n")
    for remedy in dict.fromkeys(finding.remedy for finding in remedies):
        screen.write(f"  {remedy}\n")
        for finding in remedies:
            if finding.remedy == remedy:
                screen.write(f"      {finding.name}: {finding.detail}\n")
