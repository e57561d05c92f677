"""UDP: datagrams as a stream, with a named answer to those that nobody waits for."""
