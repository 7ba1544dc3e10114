"""A process that has imported fs3 may fork while gRPC servers and channels run in it."""

import subprocess
import sys

PROGRAM = """
import fs3
import asyncio, os, threading, time
import grpc

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

async def serve():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port

server, port = asyncio.run_coroutine_threadsafe(serve(), loop).result()
channels = [grpc.insecure_channel(f"127.0.0.1:{port}") for _ in range(4)]
for channel in channels:
    grpc.channel_ready_future(channel).result(10)
dead = 0
for _ in range(40):
    child = os.fork()
    if child == 0:
        time.sleep(0.02)
        os._exit(0)
    dead += os.waitpid(child, 0)[1] != 0
print(dead, flush=True)
os._exit(0)
"""


def test_children_live() -> None:
    """With gRPC's own fork handlers half of them abort."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "0", done.stderr[-2000:]
