"""Events that a handler appends: all of them with the acknowledgement of its own event, in the same
atomic step, or none. The operator grants the streams (`allow_streams`).
"""

import json
from collections.abc import Mapping

from . import Reject, Retry, _host

__all__ = ["AccessDenied", "Invalid", "LimitExceeded", "append"]


class AccessDenied(Retry):
    """The stream is not granted. It may be before the last attempt: left alone, this is a retry."""


class Invalid(Reject):
    """The event cannot be stored: its payload is no JSON object, or it is too large."""


class LimitExceeded(Reject):
    """More events, or more bytes, than one call may stage."""


def append(
    stream: str,
    payload: Mapping[str, object] | str | bytes,
    *,
    event_type: str | None = None,
    key: str | None = None,
    partition: int | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Stages an event for a stream. Events of one call are appended in the order of these calls.

    A payload that is `str` or `bytes` is the JSON text, and is kept as it is. The key decides the
    partition where `partition` does not. `causation_id`, `producer` and `hops` in the metadata are the
    host's.
    """
    host = _host.imports()
    event = host.outbox.NewEvent(
        event_type=None if event_type is None else _host.text(event_type),
        key=None if key is None else _host.text(key),
        partition=None if partition is None else _host.whole(partition, 32, "a partition"),
        metadata=[(_host.text(name), _host.text(value)) for name, value in (metadata or {}).items()],
        payload=_host.data(payload if isinstance(payload, str | bytes) else _json(payload)),
    )
    try:
        host.outbox.append(_host.text(stream), event)
    except host.Err as error:
        refused = error.value
    else:
        return
    match refused:
        case host.outbox.Error_AccessDenied():
            raise AccessDenied(refused.value)
        case host.outbox.Error_Invalid():
            raise Invalid(refused.value)
        case _:
            raise LimitExceeded(refused.value)


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half of a surrogate pair can be written in JSON's ASCII, but not in UTF-8.
    return text if _host.text(text) == text else json.dumps(value, allow_nan=False)
