"""UDP: datagrams as streams, with a policy for those that arrive without demand."""
