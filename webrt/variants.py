"""Sessions of one model for elements of inputs that decide shapes, for initializers that a caller overrides, and for
sizes that decide conditions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from webrt.dims import evaluate
from webrt.errors import InputError, NotConstant, ShapeError
from webrt.plan import Plan
from webrt.runtime.devices import AnySession
from webrt.runtime.tensor import Tensor, host_value, to_bytes

Key: TypeAlias = tuple[tuple[tuple[str, str, tuple[int, ...], bytes], ...], frozenset[tuple[str, bool]]]

MAX_KEPT = 8


class Variants:
    """The last MAX_KEPT sessions by what they were compiled for. Hold `lock` from `session` to the end of its run.

    `roots` names the inputs whose elements every variant is compiled for; `conditions` are sizes, and every variant is
    compiled for each being 0 or not.
    """

    def __init__(
        self,
        dtypes: Mapping[str, str],
        make_plan: Callable[[Mapping[str, Any], Mapping[str, bool]], Plan],
        open_session: Callable[[Plan], AnySession],
        unknown: NotConstant | None = None,
    ) -> None:
        """`dtypes`: element types of inputs and initializers; `make_plan` compiles for known elements and conditions;
        `unknown`: why there is no plan for all."""
        self.roots: frozenset[str] = unknown.roots if unknown else frozenset()
        self.conditions = dict(unknown.conditions) if unknown else {}
        self._shapes = dict(unknown.shapes) if unknown else {}
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
            known, assumed = self._known(feeds, {*overridden, *self.roots}), self._assumed(feeds)
            arrays = tuple((n, str(a.dtype), a.shape, _elements(a)) for n, a in sorted(known.items()))
            key: Key = (arrays, frozenset(assumed.items()))
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._alive(key)
            try:
                plan = self._make_plan(known, assumed)
            except NotConstant as e:
                if not (e.roots - self.roots or e.conditions.keys() - self.conditions):
                    raise
                self.roots |= e.roots
                self.conditions |= e.conditions
                self._shapes |= e.shapes
                continue
            while len(self._kept) >= MAX_KEPT:
                self._kept.popitem(last=False)[1].close()
            self._kept[key] = self._open(plan)
            return self._kept[key]

    @property
    def sessions(self) -> list[AnySession]:
        """Those that are kept."""
        with self.lock:
            return list(self._kept.values())

    def _alive(self, key: Key) -> AnySession:
        """The kept session, made anew where its device was lost and there is another."""
        kept = self._kept[key]
        if kept.device.lost:
            self._kept[key] = self._open(kept.plan)
            kept.close()
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

    def _assumed(self, feeds: Mapping[str, Any]) -> dict[str, bool]:
        """Whether the conditions hold for the feeds' sizes; without those that make no sense for them."""
        sizes: dict[str, int] = {}
        for name, shape in self._shapes.items():
            if name not in feeds:
                raise InputError(f"no value for {name!r}; the inputs are {', '.join(self._dtypes)}")
            given = tuple(getattr(feeds[name], "shape", ()))
            sizes.update((str(d), n) for d, n in zip(shape, given, strict=False) if not isinstance(d, int))
        found = {text: _value(program, sizes) for text, program in self.conditions.items()}
        return {text: bool(value) for text, value in found.items() if value is not None}


def _value(program: list[list[Any]], sizes: Mapping[str, int]) -> int | None:
    try:
        return evaluate(program, sizes)[-1]
    except ShapeError:
        return None


def _array(name: str, value: Any, dtype: str) -> Any:
    return host_value(name, value.numpy() if isinstance(value, Tensor) else value, dtype)


def _elements(array: Any) -> bytes:
    """Bytes that tell arrays of one type and shape apart."""
    return repr(array.tolist()).encode() if array.dtype == object else bytes(to_bytes(array))
