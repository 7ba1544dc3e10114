"""A worker process: runs one attempt after another until its driver is gone.

It is started as a fresh interpreter that never imports the user's `__main__`; functions come as
cloudpickle bytes. So scripts need no `if __name__ == "__main__"`, and a REPL, standard input and
notebooks work alike. The worker dies with the driver in any case: the kernel kills it when the
thread that started it ends (`PR_SET_PDEATHSIG`), and it ends itself when its socket closes.
"""

from __future__ import annotations

import ctypes
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from typing import Any

import cloudpickle
import pyarrow as pa

from smallpond.execution import failure
from smallpond.execution.messages import (
    Failed,
    Finished,
    ForgetStage,
    LearnStage,
    Metrics,
    Ready,
    RunAttempt,
    receive,
    send,
)
from smallpond.operators.engine import EnginePool
from smallpond.operators.rows import BatchRows, Rows, StoredRows
from smallpond.operators.sql import Sql
from smallpond.operators.step import TaskOutput
from smallpond.operators.task import TaskContext
from smallpond.plan.stage import Apply, Leaf, Pipeline, ResolvedInput, StoredInput

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, temp_directory: str) -> None:
    """Serve the driver at the other end of the inherited socket.

    Args:
        parent: process id of the driver.
        temp_directory: local scratch space of this worker, removed when it has ended.
    """
    _die_with(parent)
    peer = socket.socket(fileno=descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(peer, inbox), daemon=True).start()
    import duckdb  # noqa: F401  what every task needs is loaded before there is one

    send(peer, Ready(os.getpid()))
    pipelines: dict[int, bytes | Pipeline] = {}
    pool = EnginePool(temp_directory)
    while True:
        message = inbox.get()
        match message:
            case LearnStage(stage, pipeline):
                pipelines[stage] = pipeline
            case ForgetStage(stage):
                pipelines.pop(stage, None)
            case RunAttempt():
                send(peer, _run(message, pipelines, pool))


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _read(peer: socket.socket, inbox: queue.SimpleQueue[Any]) -> None:
    while (message := receive(peer)) is not None:
        inbox.put(message)
    os._exit(0)


def _run(
    order: RunAttempt, pipelines: dict[int, bytes | Pipeline], pool: EnginePool
) -> Finished | Failed:
    started, cpu_started = time.monotonic(), time.process_time()
    task: TaskContext | None = None
    went_well = False
    try:
        pipeline = _pipeline(order.attempt.task.stage, pipelines)
        task = _context(order, pipeline, pool)
        output = run_pipeline(pipeline, order.inputs, task)
        went_well = True
    except BaseException as error:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            error = RuntimeError(f"the function raised {type(error).__name__}: {error}")
        return failure.report(order.attempt, task.failure if task else None, error)
    finally:
        if task is not None:
            task.close(went_well)
        sys.stdout.flush()
        sys.stderr.flush()
    metrics = Metrics(
        wall_s=time.monotonic() - started,
        cpu_s=time.process_time() - cpu_started,
        memory_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    )
    return Finished(order.attempt, output, metrics)


def _pipeline(stage: int, pipelines: dict[int, bytes | Pipeline]) -> Pipeline:
    """Unpickled once; a function that cannot be imported here fails the task, not the worker."""
    known = pipelines[stage]
    if isinstance(known, bytes):
        known = pipelines[stage] = cloudpickle.loads(known)
    assert isinstance(known, Pipeline)
    return known


def _context(order: RunAttempt, pipeline: Pipeline, pool: EnginePool) -> TaskContext:
    pa.set_cpu_count(max(1, order.threads))
    return TaskContext(
        partition=order.attempt.task.partition,
        partitions=pipeline.partitions,
        attempt=order.attempt.number,
        seed=pipeline.seed,
        threads=order.threads,
        memory_bytes=order.memory_bytes,
        pool=pool,
        output_path=order.output_path,
        inline_bytes_max=order.inline_bytes_max,
        engine_share=1 / _engines(pipeline.root),
    )


def _engines(node: Leaf | Apply) -> int:
    """How many DuckDB instances the pipeline may need at a time."""
    if isinstance(node, Leaf):
        return 1
    here = 0 if isinstance(node.step, Sql) else 1
    return here + max(1, sum(_engines(child) for child in node.inputs) - len(node.inputs) + 1)


def run_pipeline(
    pipeline: Pipeline, inputs: tuple[ResolvedInput, ...], task: TaskContext
) -> TaskOutput:
    """Build the chain of steps over the inputs and let the sink pull the rows through it."""
    rows = _build(pipeline.root, inputs, task)
    with task.step(pipeline.label, "writing the output"):
        return pipeline.sink.consume(rows, task, pipeline.label)


def _build(node: Leaf | Apply, inputs: tuple[ResolvedInput, ...], task: TaskContext) -> Rows:
    if isinstance(node, Leaf):
        return open_input(inputs[node.index], task)
    below = [_build(child, inputs, task) for child in node.inputs]
    return node.step.apply(below, task, node.label)


def open_input(source: ResolvedInput, task: TaskContext) -> Rows:
    """The rows behind a resolved input, not read yet."""
    if isinstance(source, StoredInput):
        schema = pa.ipc.read_schema(pa.py_buffer(source.schema))
        if not schema.names:
            return BatchRows(pa.RecordBatchReader.from_batches(schema, iter(())))
        return StoredRows(source.segments, schema, task)
    return source.scan.rows(source.pieces, task)
