"""What a server expects of the proxies before it: the settings of the PROXY protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.arguments import a_flag, a_number, a_whole_number
from penstock.net.proxies.header import LONGEST_TEXT

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

__all__ = ["ProxyProtocol"]


@dataclass(frozen=True, slots=True)
class ProxyProtocol:
    """Which proxies a server trusts, and what it expects of them."""

    trusted: tuple[IPv4Network | IPv6Network, ...]
    required: bool = True
    timeout: float = 5.0
    max_size: int = 4096

    @classmethod
    def checked(
        cls, trusted: str | Iterable[str], required: bool, timeout: float, max_size: int
    ) -> ProxyProtocol:
        """The settings that these arguments make, or a ValueError."""
        from ipaddress import ip_network

        subject = "proxy_protocol()"
        networks = []
        for text in (trusted,) if isinstance(trusted, str) else trusted:
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                raise ValueError(
                    f"proxy_protocol({text!r}): {error}; pass the networks of your proxies, for example "
                    "'10.0.0.0/8' or '192.0.2.7'"
                ) from None
        if not networks:
            raise ValueError(
                "proxy_protocol(): nobody is trusted; pass the networks of your proxies, for example "
                "'10.0.0.0/8' or '192.0.2.7'"
            )
        return cls(
            tuple(networks),
            a_flag(required, f"required of {subject}"),
            a_number(timeout, f"timeout of {subject}", above=0),
            a_whole_number(max_size, f"max_size of {subject}", least=LONGEST_TEXT, most=16 + 0xFFFF),
        )

    def trusts(self, address: Any) -> bool:
        """Whether the peer at this address may tell whom it speaks for."""
        from ipaddress import ip_address

        if not isinstance(address, tuple):
            return True  # The permissions of a Unix socket decide who may connect to it.
        peer = ip_address(address[0])
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer in network for network in self.trusted)
