"""What the host offers, between `component` and the rest.

It is there only while an event is handled: neither the build, which imports the handler's file, nor a
unit test has it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

handlers: list[Callable[..., Any]] = []
"""The functions that are marked as the handler."""

_imports: SimpleNamespace | None = None


def open(imports: SimpleNamespace) -> None:
    """From now on the host can be asked."""
    global _imports
    _imports = imports


def is_open() -> bool:
    """Whether an event was handled already."""
    return _imports is not None


def imports() -> SimpleNamespace:
    """The modules that the host's side of the world is, once they can be called."""
    if _imports is None:
        raise RuntimeError("settings, outbox and state are there only while an event is handled")
    return _imports


def text(value: object) -> str:
    """Text as the host takes it: without the halves of surrogate pairs that Python allows."""
    string = str(value)
    return string if string.isascii() else string.encode("utf-8", "replace").decode()


def data(value: object) -> bytes:
    """Bytes as they are, text as it is."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a value must be str or bytes, not {type(value).__name__}")


def whole(value: int, bits: int, what: str) -> int:
    """A number that the host's type holds."""
    if not isinstance(value, int) or not 0 <= value < 2**bits:
        raise ValueError(f"{what} must be an integer from 0 to {2**bits - 1}, not {value!r}")
    return int(value)
