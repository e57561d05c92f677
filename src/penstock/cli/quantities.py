"""Sizes, times and rates as people write them at a command line, and as they read them on a screen."""

from __future__ import annotations

import argparse
import re
from typing import Final

__all__ = ["a_count", "a_duration", "a_port", "a_rate", "a_size", "duration", "size"]

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def a_count(text: str) -> int:
    """A whole number of at least 1, with K or M for thousands or millions."""
    match = re.fullmatch(r"(\d+)([KM]?)", text.replace("_", "").replace(",", ""), re.IGNORECASE)
    value = int(match[1]) * {"": 1, "K": 1000, "M": 1_000_000}[match[2].upper()] if match else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1; write 500, 10K or 5M")
    return value


def a_size(text: str) -> int:
    """Bytes, with K, M, G or T for the powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    value = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 500000, 512K, 64M or 2G")
    return value


def a_duration(text: str) -> float:
    """Seconds, or with m, h or d minutes, hours or days."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 15m, 1h or 7d")
    return value


def a_port(text: str) -> int:
    """A number from 0 to 65535."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a whole number from 0 to 65535")
    return int(text)


def a_rate(text: str) -> float:
    """Records per second: 100, 100/s or 0.5/s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", text)
    value = float(match[1]) if match else 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; write 100/s or 0.5/s")
    return value


def size(nbytes: float) -> str:
    """A number of bytes in three digits or so."""
    for unit in ("B", "K", "M", "G"):
        if nbytes < 1024:
            return f"{nbytes:.0f}{unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f}{unit}"
        nbytes /= 1024
    return f"{nbytes:.1f}T"


def duration(seconds: float) -> str:
    """A number of seconds in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
