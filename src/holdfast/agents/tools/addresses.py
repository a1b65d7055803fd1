"""Which addresses a page may be fetched from: the open internet, and nothing nearer. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200"),
            *("168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        ),
    )
)
# Addresses by which a gateway or a relay reaches another address, which is then the one that counts.
_TRANSLATED: Final = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96"),
    )
)
# What is set aside by IANA; the interpreter's own tables differ from release to release.
_SET_ASIDE: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
            *("2001::/23", "2001:db8::/32", "3fff::/20"),
        ),
    )
)
_OPEN_SIX: Final = ipaddress.ip_network("2000::/3")


def refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Why this address is out of bounds; None for one of the open internet.

    The metadata services of clouds stay out of reach even where private addresses are allowed, and so does
    what stands for another address, since that could be theirs.
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
    if not address.is_loopback and any(address in net for net in _TRANSLATED):
        return "it stands for another address"
    return None if allow_private else _not_open(address)


def _not_open(address: Address) -> str | None:
    if address.is_loopback:
        return "it is this machine"
    if address.is_link_local:
        return "it is a link-local address"
    if address.is_private or (isinstance(address, ipaddress.IPv6Address) and address.is_site_local):
        return "it is in a private network"
    aside = any(address in net for net in _SET_ASIDE) or not address.is_global or address.is_reserved
    beyond = address.version == 6 and address not in _OPEN_SIX
    return "it is a reserved address" if aside or beyond else None
