"""Write an event handler for Wasmill in Python.

`handler.py` marks one function as the handler:

    from wasmill import Delivery, Event, Reject, Retry, handler

    @handler
    def handle(event: Event, delivery: Delivery) -> None:
        ...

Returning acknowledges the event. Raising `Retry` asks for it again, raising `Reject` makes it a dead
letter at once, and any other exception is a retry that tells the exception. `logging` goes to the
host's log. What a handler changes goes through `wasmill.outbox` (events that it appends) and
`wasmill.state` (keys and values that it keeps): committed with the acknowledgement, or not at all.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, overload

from . import _host

__all__ = ["Delivery", "Event", "Reject", "Retry", "config", "handler"]

_DELAY_MS_MAX = 2**32 - 1


class Retry(Exception):
    """Try the event again, unless this was its last attempt.

    Only the first 1,000 characters of `reason` are kept. `delay` is how long to wait at least: seconds
    or a `timedelta`, up to 49 days. Without it the pipeline's backoff decides.
    """

    # A class of a project's own that forgets `super().__init__` has these.
    reason: str = ""
    delay_ms: int | None = None

    def __init__(self, reason: str, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_ms = None if delay is None else _milliseconds(delay)


class Reject(Exception):
    """Never try the event again: make it a dead letter.

    Only the first 1,000 characters of `reason` are kept.
    """

    reason: str = ""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Event:
    """One event of the log. It never changes, however often it is delivered."""

    id: str = ""
    """The producer's id, or one that the host made. Use it to recognise an event that comes again."""
    stream_name: str = ""
    """The stream that holds the event."""
    partition: int = 0
    """The event's partition, from 0."""
    sequence: int = 1
    """The event's place in its partition, from 1."""
    timestamp: str = ""
    """The event's time as it is stored: as a rule ISO 8601 in UTC."""
    timestamp_ms: int | None = None
    """The instant that `timestamp` names, in milliseconds since 1970; None where the text is no time."""
    key: str | None = None
    """The routing key: events with equal keys are in the same partition, in order."""
    event_type: str | None = None
    """The event's type, as its producer named it."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Metadata: texts as they are, other values as their JSON text."""
    payload: bytes = b"{}"
    """The payload: the text of a JSON object in UTF-8, byte for byte as it was appended."""

    def json(self) -> Any:
        """The payload's value, parsed anew."""
        return json.loads(self.payload)


@dataclass(slots=True)
class Delivery:
    """How the event came to be delivered this time."""

    pipeline: str = ""
    """The pipeline that delivers."""
    group: str = ""
    """The consumer group that the pipeline reads for."""
    attempt: int = 1
    """How often the event was delivered, this time included: from 1."""
    max_attempts: int = 5
    """The attempt after which a failure is final."""
    timeout_ms: int = 30_000
    """Milliseconds left for the answer when the call starts; after that it is cut off."""


def handler(function: Callable[[Event, Delivery], None]) -> Callable[[Event, Delivery], None]:
    """Makes a function the handler. There is one in a plugin."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("a handler is no `async` function: a plugin has nothing to wait for")
    if inspect.isgeneratorfunction(function):
        raise TypeError("a handler has no `yield`: nothing would run it")
    _host.handlers.append(function)
    return function


@overload
def config(key: str) -> str | None: ...
@overload
def config(key: str, default: str) -> str: ...
def config(key: str, default: str | None = None) -> str | None:
    """The operator's setting of this name, or `default` where it is not set."""
    host = _host.imports()
    try:
        value: str | None = host.config.get(_host.text(key))
    except host.Err as error:
        raise Retry(f"the setting `{key}` cannot be read: {error.value.value}") from None
    return default if value is None else value


def _milliseconds(delay: float | timedelta) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return round(min(max(seconds * 1000, 0), _DELAY_MS_MAX))
