"""Keys: secrets that executions refer to and nobody reads again.

keys.create(reference, value=..., ...)     # sealed under the ring, see `sealing`
keys.rotate(reference, value=..., ...)     # the next claim gets the new value
keys.revoke(reference, ...)                # the value is destroyed
keys.reseal()                              # under the first key of the ring
"""

from orchestrator.access.keyring import Ring, RingFault
from orchestrator.access.keys.holding import Holder
from orchestrator.access.keys.references import InvalidReference, Reference
from orchestrator.access.keys.sealing import CannotOpen
from orchestrator.access.keys.storing import (
    LEAST_CHARACTERS,
    LONGEST_BYTES,
    InvalidKey,
    KeyExists,
    NewKey,
    UnknownKey,
    create,
    find,
    reseal,
    revoke,
    rotate,
)

__all__ = [
    "LEAST_CHARACTERS",
    "LONGEST_BYTES",
    "CannotOpen",
    "Holder",
    "InvalidKey",
    "InvalidReference",
    "KeyExists",
    "NewKey",
    "Reference",
    "Ring",
    "RingFault",
    "UnknownKey",
    "create",
    "find",
    "reseal",
    "revoke",
    "rotate",
]
