"""Sessions of one model for elements of inputs that decide shapes, and for initializers that a caller overrides."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from webrt.errors import InputError, NotConstant
from webrt.plan import Plan
from webrt.runtime.devices import AnySession
from webrt.runtime.tensor import Tensor, host_value, to_bytes

Key: TypeAlias = tuple[tuple[str, str, tuple[int, ...], bytes], ...]

MAX_KEPT = 8


class Variants:
    """The last MAX_KEPT sessions by what they were compiled for. Hold `lock` from `session` to the end of its run.

    `roots` names the inputs whose elements every variant is compiled for.
    """

    def __init__(
        self,
        dtypes: Mapping[str, str],
        make_plan: Callable[[Mapping[str, Any]], Plan],
        open_session: Callable[[Plan], AnySession],
        roots: frozenset[str] = frozenset(),
    ) -> None:
        """`dtypes`: element types of inputs and initializers; `make_plan` compiles for known elements."""
        self.roots = roots
        self.lock = threading.RLock()
        self._dtypes, self._make_plan, self._open = dtypes, make_plan, open_session
        self._kept: OrderedDict[Key, AnySession] = OrderedDict()

    @property
    def latest(self) -> AnySession | None:
        """The session that ran last."""
        return next(reversed(self._kept.values()), None)

    def session(self, feeds: Mapping[str, Any], overridden: Collection[str]) -> AnySession:
        """The session for these feeds, compiled at their first use. Raises InputError and ModelError."""
        while True:
            known = self._known(feeds, {*overridden, *self.roots})
            key: Key = tuple((n, str(a.dtype), a.shape, _elements(a)) for n, a in sorted(known.items()))
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            try:
                plan = self._make_plan(known)
            except NotConstant as e:
                if not e.roots - self.roots:
                    raise
                self.roots |= e.roots
                continue
            while len(self._kept) >= MAX_KEPT:
                self._kept.popitem(last=False)[1].close()
            self._kept[key] = self._open(plan)
            return self._kept[key]

    def close(self) -> None:
        """Frees the sessions' device memory."""
        with self.lock:
            for session in self._kept.values():
                session.close()
            self._kept.clear()

    def _known(self, feeds: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        missing = sorted(n for n in names if n not in feeds)
        if missing:
            raise InputError(f"no value for {', '.join(map(repr, missing))}; the inputs are {', '.join(self._dtypes)}")
        return {n: _array(n, feeds[n], self._dtypes.get(n, "")) for n in names}


def _array(name: str, value: Any, dtype: str) -> Any:
    return host_value(name, value.numpy() if isinstance(value, Tensor) else value, dtype)


def _elements(array: Any) -> bytes:
    """Bytes that tell arrays of one type and shape apart."""
    return repr(array.tolist()).encode() if array.dtype == object else bytes(to_bytes(array))
