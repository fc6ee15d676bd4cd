"""Addresses that an HTTP action may reach: public ones, and those that a setting allows.

The rule is applied to the address of the connection, never to a name: a name can mean another
address a moment later.
"""

from __future__ import annotations

import functools
import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = frozenset(
    map(
        ipaddress.ip_address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
    )
)
"""Addresses where clouds keep credentials of their machines. One of them (Azure's) is public."""

NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            # special addresses by IANA's registries (RFC 6890) that `is_global` of Python 3.11
            # counts as public
            "192.0.0.0/24",
            "192.88.99.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "64:ff9b:1::/48",
            "100::/64",
            "100:0:0:1::/64",
            "2001::/23",
            "2620:4f:8000::/48",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",
            "ff00::/8",
        ),
    )
)

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
COMPATIBLE = ipaddress.IPv6Network("::/96")
PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")


@functools.cache
def networks(text: str) -> tuple[Network, ...]:
    """Parse networks separated by commas, as in the setting."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def may_reach(address: Address, *, allowed: tuple[Network, ...]) -> bool:
    """Return True if an action may connect to this address. An IPv6 address that stands for an IPv4
    one (mapped, compatible, NAT64, 6to4, Teredo) is treated like that one."""
    meant = _meant(address)
    if any(each in network for each in {address, meant} for network in allowed):
        return True
    if meant in METADATA or any(meant in network for network in NOT_PUBLIC):
        return False
    if isinstance(meant, IPv6Address) and meant not in PUBLIC_IPV6:
        return False
    return meant.is_global and not meant.is_multicast


def _meant(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    # ::1 and :: are themselves, and not public
    if address in NAT64 or (address in COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    # without the scope, which names only an interface
    return IPv6Address(int(address))
