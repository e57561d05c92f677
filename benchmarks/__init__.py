"""Penstock beside its peers: paired, interleaved, in one process. Run it with ``make bench``."""
