"""Bridges to other worlds that speak Reactive Streams, or something near it.

Each bridge is a package of its own with an extra of its own, so that the core stays free of dependencies:
:mod:`penstock.interop.jvm` for Java (``pip install 'penstock[jvm]'``).
"""
