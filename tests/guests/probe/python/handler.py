"""Does what an event's payload says: see README.md in the folder above."""

import logging
import sys
from datetime import timedelta
from typing import Any

from wasmill import Delivery, Event, Reject, Retry, config, handler, outbox, state

log = logging.getLogger(__name__)
kept: list[bytearray] = []


@handler
def handle(event: Event, delivery: Delivery) -> None:
    match event.json():
        case {"do": "ack"}:
            return
        case {"do": "retry", "reason": reason, "delay_ms": delay_ms}:
            raise Retry(reason, delay=timedelta(milliseconds=delay_ms))
        case {"do": "retry", "reason": reason}:
            raise Retry(reason)
        case {"do": "reject", "reason": reason}:
            raise Reject(reason)
        case {"do": "raise", "reason": reason}:
            raise LookupError(reason)
        case {"do": "crash", "reason": reason}:
            sys.exit(reason)
        case {"do": "log", "level": level, "message": message}:
            log.log(logging.getLevelNamesMapping()[level.upper()], message)
        case {"do": "print", "message": message}:
            print(message)
        case {"do": "config", "key": key}:
            raise Retry(config(key, "none"))
        case {"do": "count", "key": key}:
            raise Retry(str(state.open("default").increment(key)))
        case {"do": "set", "key": key, "value": value}:
            bucket = state.open("default")
            bucket.set(key, value)
            raise Retry((bucket.get(key) or b"none").decode())
        case {"do": "append", "stream": stream, "payload": payload}:
            outbox.append(stream, payload, event_type="probe", key="k", metadata={"a": "b"})
        case {"do": "echo"}:
            raise Retry(echo(event, delivery))
        case {"do": "leak", "bytes": count}:
            kept.append(bytearray(b"\1") * count)
        case other:
            raise Reject(f"unknown: {other.get('do')}")


def echo(event: Event, delivery: Delivery) -> str:
    seen: dict[str, Any] = {
        "id": event.id,
        "stream": event.stream_name,
        "partition": event.partition,
        "sequence": event.sequence,
        "timestamp": event.timestamp,
        "ms": event.timestamp_ms,
        "key": event.key,
        "type": event.event_type,
        "metadata": len(event.metadata),
        "bytes": len(event.payload),
        "pipeline": delivery.pipeline,
        "group": delivery.group,
        "attempt": delivery.attempt,
        "max": delivery.max_attempts,
    }
    return "".join(f"{name}={'none' if value is None else value} " for name, value in seen.items())
