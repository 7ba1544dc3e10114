"""Metadata operations: retried over all servers until one deadline, applied exactly once.

Each request has a number, unique within this client incarnation; a retry repeats it, also on
another server, and the server answers with the recorded result of the first. `acknowledged` tells
the servers up to which number every request has been answered here, so that they may forget.

A request that runs into the deadline has an unknown outcome and the error says so.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from fs3._native import NativeError
from fs3.client.ports import Channel
from fs3.config.client import ClientConfig
from fs3.config.cluster import Endpoint
from fs3.errors import Advice, Busy, Fs3Error, InvalidArgument, TimedOut, Unavailable, from_number
from fs3.ids import Incarnation, RequestId
from fs3.wire import metadata as wire

Reply = TypeVar("Reply", bound=msgspec.Struct)


class Identity(NamedTuple):
    """On whose behalf the client asks."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of_process(cls) -> "Identity":
        return cls(os.geteuid(), os.getegid(), tuple(os.getgroups()))


class RequestLedger:
    """Numbers requests and knows below which number all have been answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._outstanding: dict[int, None] = {}  # in order of insertion, so the oldest is first

    def begin(self) -> tuple[RequestId, RequestId]:
        """A new number, and the highest one up to which everything is answered."""
        with self._lock:
            self._last += 1
            self._outstanding[self._last] = None
            oldest = next(iter(self._outstanding))
            return RequestId(self._last), RequestId(oldest - 1)

    def end(self, request: RequestId) -> None:
        with self._lock:
            del self._outstanding[request]


class MetadataClient:
    """Sends requests to the metadata servers of one cluster.

    Args:
        endpoints: the servers as the routing names them now; asked again after each failure.
        dial: opens a channel; may raise NativeError.
        identity: on whose behalf.
        incarnation: of this client.
        config: deadlines and pauses.
    """

    def __init__(
        self,
        endpoints: Callable[[], Sequence[Endpoint]],
        dial: Callable[[Endpoint], Channel],
        identity: Identity,
        incarnation: Incarnation,
        config: ClientConfig,
    ) -> None:
        self._endpoints = endpoints
        self._dial = dial
        self._identity = identity
        self._incarnation = incarnation
        self._config = config
        self._ledger = RequestLedger()
        self._lock = threading.Lock()
        self._current: Channel | None = None
        self._turn = 0
        self._retried = 0

    def call(self, request: wire.Request, reply: type[Reply], subject: str) -> Reply:
        """One operation about `subject` (the path as the user wrote it).

        Raises:
            Fs3Error: the server's refusal, or TimedOut when nobody answered in time.
        """
        outcome = self._batch([request], reply, [subject])[0]
        if isinstance(outcome, Fs3Error):
            raise outcome
        return outcome

    def call_many(
        self, requests: Sequence[wire.Request], reply: type[Reply], subjects: Sequence[str]
    ) -> list[Reply | Fs3Error]:
        """Independent operations, sent together; each one's reply or error, in order."""
        outcomes: list[Reply | Fs3Error] = []
        step = self._config.metadata_batch_max
        for begin in range(0, len(requests), step):
            here = slice(begin, begin + step)
            outcomes += self._batch(requests[here], reply, subjects[here])
        return outcomes

    def counters(self) -> dict[str, int]:
        return {"metadata_retries": self._retried}

    def close(self) -> None:
        with self._lock:
            current, self._current = self._current, None
        if current is not None:
            current.close()

    def _batch(
        self, requests: Sequence[wire.Request], reply: type[Reply], subjects: Sequence[str]
    ) -> list[Reply | Fs3Error]:
        begun = [self._ledger.begin() for _ in requests]
        try:
            bodies = [
                (wire.METHOD_OF[type(request)], self._encode(request, subject, *numbers))
                for request, subject, numbers in zip(requests, subjects, begun, strict=True)
            ]
            return self._settle(bodies, reply, subjects)
        finally:
            for number, _ in begun:
                self._ledger.end(number)

    def _encode(
        self, request: wire.Request, subject: str, number: RequestId, acknowledged: RequestId
    ) -> bytes:
        caller = wire.Caller(*self._identity, self._incarnation, number, acknowledged)
        try:
            return _ENCODER.encode((caller, request))
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{error.object!r}: a name must be UTF-8; rename it") from error
        except OverflowError as error:
            raise InvalidArgument(f"{subject}: a number is too large") from error

    def _settle(
        self, bodies: Sequence[tuple[int, bytes]], reply: type[Reply], subjects: Sequence[str]
    ) -> list[Reply | Fs3Error]:
        decoder = _DECODERS[reply]
        outcomes: list[Any] = [None] * len(bodies)
        pending = list(range(len(bodies)))
        retry = _Retry(self._config)
        while True:
            answers = self._attempt([bodies[i] for i in pending], retry.attempt_s())
            for i, (status, body) in zip(pending, answers, strict=True):
                outcomes[i] = _outcome(status, body, decoder, subjects[i])
            pending = [i for i in pending if _is_retryable(outcomes[i])]
            if not pending:
                return outcomes
            if not retry.pause():
                break
            self._retried += len(pending)
        for i in pending:
            outcomes[i] = self._too_late(subjects[i], outcomes[i])
        return outcomes

    def _attempt(
        self, bodies: Sequence[tuple[int, bytes]], timeout_s: float
    ) -> Sequence[tuple[int, bytes | str]]:
        """One exchange with one server; failing to connect is the outcome of every request."""
        try:
            channel = self._channel()
        except NativeError as error:
            self._leave(None)
            return [(error.code, error.message)] * len(bodies)
        answers = channel.call_many(bodies, timeout_s)
        if any(isinstance(body, str) and status != Busy.number for status, body in answers):
            self._leave(channel)
        return answers

    def _channel(self) -> Channel:
        with self._lock:
            if self._current is None:
                servers = self._endpoints()
                if not servers:
                    raise NativeError(Unavailable.number, "the cluster names no metadata server")
                self._current = self._dial(servers[self._turn % len(servers)])
            return self._current

    def _leave(self, failed: Channel | None) -> None:
        """The next attempt goes to another server; other threads may have left this one already."""
        with self._lock:
            if failed is self._current:
                self._current = None
                self._turn += 1
        if failed is not None:
            failed.close()

    def _too_late(self, subject: str, last: Fs3Error) -> Fs3Error:
        late = TimedOut(
            f"{subject or 'request'}: not answered within {self._config.metadata_deadline_s:g} s, "
            f"so its outcome is unknown; last: {last.message}; see `fs3 health`"
        )
        late.filename = last.filename
        return late


class _Retry:
    """One deadline over all attempts, with pauses that double."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._deadline = time.monotonic() + config.metadata_deadline_s
        self._pause_s = config.retry_pause_min_s

    def attempt_s(self) -> float:
        return max(min(self._config.metadata_attempt_s, self._deadline - time.monotonic()), 0.001)

    def pause(self) -> bool:
        """Waits before the next attempt; False when there is no time for one."""
        if time.monotonic() + self._pause_s >= self._deadline:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._config.retry_pause_max_s)
        return True


_ENCODER: Final = msgspec.msgpack.Encoder()
_ERROR: Final = msgspec.msgpack.Decoder(wire.ErrorBody)
_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    reply: msgspec.msgpack.Decoder(reply) for _, reply in wire.METHODS.values()
}


def _outcome(
    status: int, body: bytes | str, decoder: msgspec.msgpack.Decoder[Any], subject: str
) -> Any:
    if isinstance(body, str):
        return about(from_number(status, body), subject)
    if status == 0:
        return decoder.decode(body)
    refusal = _ERROR.decode(body)
    return about(from_number(status, refusal.message, errno=refusal.errno or None), subject)


def _is_retryable(outcome: object) -> bool:
    return isinstance(outcome, Fs3Error) and outcome.advice is Advice.RETRY


def about(error: Fs3Error, subject: str) -> Fs3Error:
    """The same error, naming the path as the user wrote it, not as it was sent."""
    if subject and subject not in error.message:
        sent = subject.lstrip("/")
        reason = error.message.removeprefix(f"{sent}: ").removeprefix(": ")
        error = type(error)(f"{subject}: {reason}", errno=error.errno)
    error.filename = subject or None
    return error
