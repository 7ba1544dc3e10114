"""The client: files and directories of a cluster as Python objects.

connect.py     finds the cluster and returns a FileSystem
filesystem.py  the synchronous face; aio.py the asyncio one
file.py        a file object: position, write buffer, readahead
handle.py      an open inode: offsets in, bytes out
batch.py       read_many: thousands of samples in one native call
metadata.py    metadata operations with retries, exactly once
connection.py  what all of them stand on: one metadata client, one data client, the routing
ports.py       the two boundaries (metadata channel, chunk IO); fake.py implements both in memory
"""

import os

# gRPC would write to standard error at each fork, so once for every DataLoader worker. It reads
# this when it is imported; whoever sets it differently has their way.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
