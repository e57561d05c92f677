"""Limits of the conformance kit for a machine that is busy with other tests as well.

A subject that keeps the rules never comes near them: the kit goes on as soon as what it expects has happened.
"""

from penstock.tck import Environment

__all__ = ["PATIENT"]

PATIENT = Environment(timeout=30, gc=30)
