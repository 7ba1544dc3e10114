"""Following the routing over fs3rpc, for processes that cannot use gRPC: forked children.

The child knows the routing of its parent; it asks any metadata server now and then whether there is
a newer one, and thereby also says that it lives. Messages are msgpack arrays as in
`fs3.wire.metadata`, without a caller: nothing is changed by them.
"""

from typing import Final

import msgspec

from fs3.model.routing import Routing

FOLLOW: Final = 0x0480


class Follow(msgspec.Struct, frozen=True, array_like=True):
    """`epoch` and `version` are those of the routing the client has; the rest is its session."""

    client: int
    host: str
    pid: int
    description: str
    epoch: int
    version: int


class Followed(msgspec.Struct, frozen=True, array_like=True):
    """`routing` is None when the client has the newest."""

    routing: Routing | None
