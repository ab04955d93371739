"""State that outlives a call, in named buckets of keys and values.

Writes are committed with the acknowledgement of the handled event, in the same atomic step, or not at
all; reads see the call's own writes. If what a call has read was changed by another commit meanwhile,
the host runs the handler again on fresh state: so reading, computing and writing back is safe.

    seen = state.open("seen")
    if event.id in seen:
        return
    seen.set(event.id, event.timestamp)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import Retry, _host

__all__ = ["Bucket", "Error", "open"]


class Error(Retry):
    """The host cannot do it. Trouble with state may pass: left alone, this is a retry."""


class Bucket:
    """A bucket: one of the pipeline's own, or one that the operator maps to a shared one (`buckets`).

    It is opened when it is first used, so it may be kept in a variable of the module.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # One plugin may serve several pipelines, and each has its own buckets.
        self._handles: dict[str, Any] = {}

    def get(self, key: str) -> bytes | None:
        """The value of a key, if it has one."""
        value: bytes | None = self._call(lambda host, bucket: bucket.get(_host.text(key)))
        return value

    def get_many(self, keys: Iterable[str]) -> list[bytes | None]:
        """The values of keys, in the order asked for: one question to the store for all of them."""
        names = [_host.text(key) for key in keys]
        pairs = self._call(lambda host, bucket: host.batch.get_many(bucket, names))
        return [None if pair is None else pair[1] for pair in pairs]

    def __contains__(self, key: str) -> bool:
        """Whether a key has a value."""
        return bool(self._call(lambda host, bucket: bucket.exists(_host.text(key))))

    def set(self, key: str, value: str | bytes) -> None:
        """Sets the value of a key; at most 1 MiB."""
        data = _host.data(value)
        self._call(lambda host, bucket: bucket.set(_host.text(key), data))

    def set_many(self, values: Mapping[str, str | bytes]) -> None:
        """Sets the values of keys."""
        pairs = [(_host.text(key), _host.data(value)) for key, value in values.items()]
        self._call(lambda host, bucket: host.batch.set_many(bucket, pairs))

    def delete(self, key: str) -> None:
        """Removes a key; one that is not there is no error."""
        self._call(lambda host, bucket: bucket.delete(_host.text(key)))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Removes keys."""
        names = [_host.text(key) for key in keys]
        self._call(lambda host, bucket: host.batch.delete_many(bucket, names))

    def increment(self, key: str, delta: int = 1) -> int:
        """Adds to a number, and gives the sum.

        A key without a value counts as zero; the number is kept as decimal text, of up to 64 bits.
        """
        added = _host.whole(delta, 64, "what is added")
        return int(self._call(lambda host, bucket: host.atomics.increment(bucket, _host.text(key), added)))

    def keys(self) -> Iterator[str]:
        """The bucket's keys, as the store has them: the call's own writes are not among them."""
        page = self._call(lambda host, bucket: bucket.list_keys(None))
        yield from page.keys
        while page.cursor is not None:
            page = self._call(lambda host, bucket, cursor=page.cursor: bucket.list_keys(cursor))
            yield from page.keys

    def _call(self, operation: Callable[..., Any]) -> Any:
        host = _host.imports()
        try:
            bucket = self._handles.get(host.pipeline)
            if bucket is None:
                bucket = self._handles[host.pipeline] = host.keyvalue.open(_host.text(self.name))
            return operation(host, bucket)
        except host.Err as error:
            match error.value:
                case host.keyvalue.Error_NoSuchStore():
                    reason = f"there is no bucket `{self.name}`"
                case host.keyvalue.Error_AccessDenied():
                    reason = f"the bucket `{self.name}` is not granted"
                case other:
                    reason = other.value
        raise Error(reason)


def open(name: str) -> Bucket:
    """The bucket of this name: letters, digits, `.`, `_` and `-`."""
    return Bucket(name)
