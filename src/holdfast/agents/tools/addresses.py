"""Which addresses a page may be fetched from: the open internet, and nothing nearer. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254"))
)
# Addresses by which a gateway or a relay reaches another address, which is then the one that counts.
_TRANSLATED: Final = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"))
)


def refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Why this address is out of bounds; None for one of the open internet.

    The metadata services of clouds stay out of reach even where private addresses are allowed.
    """
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "it is not an address"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address in _METADATA:
        return "it is a cloud's metadata service"
    if address.is_multicast:
        return "it is a multicast address"
    if address.is_unspecified:
        return "it is no address of any machine"
    return None if allow_private else _not_open(address)


def _not_open(address: Address) -> str | None:
    if address.is_loopback:
        return "it is this machine"
    if address.is_link_local:
        return "it is a link-local address"
    if isinstance(address, ipaddress.IPv6Address) and any(address in net for net in _TRANSLATED):
        return "it stands for another address"
    if address.is_private:
        return "it is in a private network"
    return None if address.is_global and not address.is_reserved else "it is a reserved address"
