"""Servers under load: Penstock's sockets beside raw protocols, other libraries and the real Reactor Netty."""
