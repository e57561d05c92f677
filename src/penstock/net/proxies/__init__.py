"""Connections with a proxy in between: the PROXY protocol, HTTP CONNECT and SOCKS5."""
