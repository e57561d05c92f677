"""Asynchronous operators: hand-written drains with a bounded queue."""
