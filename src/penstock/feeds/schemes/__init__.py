"""The feeds of this package: a module for each kind, which declares its schemes in ``SCHEMES``.

A module that is added here is found by :mod:`penstock.feeds.registry`; there is no list to extend.
"""
