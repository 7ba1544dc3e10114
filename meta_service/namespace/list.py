"""list: the entries of a directory, in pages."""

import errno

from fs3.errors import InvalidArgument, from_errno
from fs3.model.inode import Kind
from fs3.wire.metadata import LIST_LIMIT_MAX, Caller, Entry, List, Listing
from meta_service.namespace.permissions import READ, SEARCH, permits, require
from meta_service.namespace.resolve import existing
from meta_service.namespace.tree import Tree


def list_entries(tree: Tree, caller: Caller, request: List) -> Listing:
    """Attributes are left out where the caller may read the directory but not search it."""
    directory = existing(tree, caller, request.base, request.path, follow=True)
    if directory.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, request.path)
    require(directory, caller, READ, request.path)
    if not 1 <= request.limit <= LIST_LIMIT_MAX:
        raise InvalidArgument(f"a page of {request.limit} entries: ask for 1 to {LIST_LIMIT_MAX}")
    found = tree.entries(directory.id, after=request.after, limit=request.limit + 1)
    page = found[: request.limit]
    with_attributes = request.attributes and permits(directory, caller, SEARCH)
    entries = tuple(
        Entry(name, entry.id, entry.kind, tree.named(entry) if with_attributes else None)
        for name, entry in page
    )
    return Listing(entries, more=len(found) > request.limit)
