"""Penstock beside its peers: paired, interleaved, in several processes. Run it with ``make bench``."""
