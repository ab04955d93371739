"""The component's side: calls the project's handler, and turns its end into an answer.

`componentize-py` is told to begin here. It imports the handler's file once, while it builds, and keeps
the interpreter as it is then: a module that is not imported by that time is not there later.
"""

import logging
import traceback
from datetime import datetime
from types import SimpleNamespace

import wit_world
from componentize_py_types import Err
from wit_world.imports import atomics, batch, outbox, types
from wit_world.imports import logging as host_logging
from wit_world.imports import wasi_config_store as host_config
from wit_world.imports import wasi_keyvalue_store as keyvalue

from . import Delivery, Event, Reject, Retry, _host

_LEVELS = [
    (logging.CRITICAL, host_logging.Level.CRITICAL),
    (logging.ERROR, host_logging.Level.ERROR),
    (logging.WARNING, host_logging.Level.WARN),
    (logging.INFO, host_logging.Level.INFO),
    (logging.DEBUG, host_logging.Level.DEBUG),
    (logging.NOTSET, host_logging.Level.TRACE),
]

_log = logging.getLogger("wasmill")


class _HostLog(logging.Handler):
    """Sends what is logged to the host, which decides what is shown."""

    def __init__(self) -> None:
        super().__init__()
        # What was logged while the handler's file was imported.
        self._early: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not _host.is_open():
            self._early.append(record)
            return
        early, self._early = self._early, []
        for each in [*early, record]:
            try:
                self._send(each)
            except Exception:
                self.handleError(each)

    def _send(self, record: logging.LogRecord) -> None:
        level = next(level for number, level in _LEVELS if record.levelno >= number)
        context = "" if record.name == "root" else _host.text(record.name)
        host_logging.log(level, context, _host.text(self.format(record)))


logging.basicConfig(level=logging.NOTSET, handlers=[_HostLog()], format="%(message)s")

# The project's file. It comes after the log, to which it may write.
import handler  # noqa: E402, F401

if len(_host.handlers) != 1:
    raise RuntimeError(f"handler.py marks {len(_host.handlers)} functions with `@handler`; it must be one")
_handle = _host.handlers[0]

_imports = SimpleNamespace(
    Err=Err, atomics=atomics, batch=batch, config=host_config, keyvalue=keyvalue, outbox=outbox, pipeline=""
)


class WitWorld(wit_world.WitWorld):
    """What the component exports."""

    def handle(self, event: types.Event, delivery: types.Delivery) -> None:
        """Handles one event."""
        _imports.pipeline = delivery.pipeline
        _host.open(_imports)
        failure = _failure(_event(event), _delivery(delivery))
        if failure is not None:
            raise Err(failure)


def _event(event: types.Event) -> Event:
    return Event(
        event.id,
        event.stream_name,
        event.partition,
        event.sequence,
        event.timestamp,
        event.timestamp_ms,
        event.key,
        event.event_type,
        dict(event.metadata),
        event.payload,
    )


def _delivery(delivery: types.Delivery) -> Delivery:
    return Delivery(
        delivery.pipeline, delivery.group, delivery.attempt, delivery.max_attempts, delivery.timeout_ms
    )


def _failure(event: Event, delivery: Delivery) -> types.Failure | None:
    """Calls the handler: None if it returned, else the failure that its exception stands for."""
    try:
        result = _handle(event, delivery)
        if hasattr(result, "__await__"):
            raise TypeError("the handler returned an awaitable, and a plugin has nothing to wait for")
    except Reject as error:
        return types.Failure_Reject(_host.text(error.reason))
    except Retry as error:
        return types.Failure_Retry(types.Retry(_host.text(error.reason), error.delay_ms))
    except Exception as error:
        # From the handler's own frame on.
        trace = error.__traceback__ and error.__traceback__.tb_next
        _log.error("the handler failed", exc_info=(type(error), error, trace))
        return types.Failure_Retry(types.Retry(_host.text(_headline(error)), None))
    return None


def _headline(error: Exception) -> str:
    """`Type: message`, or the type alone."""
    try:
        message = str(error)
    except Exception:
        message = "(its text cannot be had)"
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _warm_up() -> None:
    """Does once what imports modules when it is first done: in a component that would be too late."""
    datetime.strptime("2000", "%Y")
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ExceptionGroup("outer", [ValueError()]) from error
    except ExceptionGroup:
        traceback.format_exc()


_warm_up()
