"""Servers and clients over TCP and Unix sockets, with TLS or without."""
