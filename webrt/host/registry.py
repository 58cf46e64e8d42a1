"""The table of operators that the CPU provider computes itself."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from webrt.errors import InvalidModel
from webrt.host.values import Array, HostValue, Outputs

if TYPE_CHECKING:
    from webrt.host.graph import GraphRunner

FAMILIES = (
    "elementwise", "reshape", "cast", "slicing", "gather", "creation", "reduce", "quantize", "matmul", "activation",
    "softmax", "norm", "conv", "pool", "conv_transpose", "deform", "rnn", "resize", "grid", "scatter", "sets",
    "sequence", "control", "random", "signal", "loss", "vision", "text", "training", "attention", "contrib_attention",
    "contrib_nn", "contrib_quant", "ml", "linear", "trees", "svm",
)  # fmt: skip
"""The modules with operators, those first that fold constants: a family is imported when one before it lacks what is
looked up."""

Function = Callable[..., Outputs]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Call:
    """A node as its operator sees it: where it is, its attributes (defaults filled in) and its subgraphs."""

    op_type: str
    domain: str
    opset: int
    name: str
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    graphs: Mapping[str, GraphRunner] = field(default_factory=dict)

    def wants(self, i: int) -> bool:
        """Whether output i has a name."""
        return i < len(self.outputs) and self.outputs[i] != ""

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, the schema's default, or `default`."""
        value = self.attributes.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        return int(self._need(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        return float(self._need(name, default))

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        return str(self._need(name, default))

    def ints(self, name: str) -> list[int] | None:
        """A list of integers, None where the node has none."""
        value = self.attributes.get(name)
        return None if value is None else [int(v) for v in value]

    def floats(self, name: str) -> list[float]:
        """A list of floats, empty where the node has none."""
        return [float(v) for v in self.attributes.get(name) or ()]

    def strings(self, name: str) -> list[str]:
        """A list of strings, empty where the node has none."""
        return [str(v) for v in self.attributes.get(name) or ()]

    def tensor(self, name: str) -> Array | None:
        """A tensor attribute, None where the node has none."""
        value: Array | None = self.attributes.get(name)
        return value

    def _need(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        value = default if value is None else value
        if value is None:
            raise InvalidModel(f"the attribute {name!r} is required; re-export the model")
        return value


@dataclass(frozen=True)
class Entry:
    """A function for an operator over a range of opsets; `outer` says that it wants the outer scope's values."""

    function: Function
    since: int
    until: int | None
    outer: bool

    def run(self, call: Call, outer: Mapping[str, HostValue], inputs: Sequence[HostValue]) -> Outputs:
        """Calls the function."""
        return self.function(call, outer, *inputs) if self.outer else self.function(call, *inputs)


_table: dict[tuple[str, str], list[Entry]] = {}
_waiting = list(FAMILIES)
_lock = threading.RLock()


def op(
    *names: str, domain: str = "", since: int = 1, until: int | None = None, outer: bool = False
) -> Callable[[F], F]:
    """Registers a function for operators of a domain, for opsets `since` ≤ opset < `until`.

    The function takes a Call, the outer scope's values where `outer` is set, then one argument per input.
    """

    def add(function: F) -> F:
        for name in names:
            _table.setdefault((domain, name), []).append(Entry(function, since, until, outer))
        return function

    return add


def lookup(op_type: str, domain: str, opset: int) -> Entry | None:
    """The entry for an operator at an opset, or None where this package has none."""
    with _lock:
        while True:
            for entry in _table.get((domain, op_type), ()):
                if entry.since <= opset and (entry.until is None or opset < entry.until):
                    return entry
            if not _load_one():
                return None


def registered() -> list[tuple[str, str]]:
    """Every (domain, operator) of this package, sorted."""
    with _lock:
        while _load_one():
            pass
        return sorted(_table)


def _load_one() -> bool:
    """Imports the next family. Whether there was one."""
    if not _waiting:
        return False
    importlib.import_module(f"webrt.host.{_waiting[0]}")
    del _waiting[0]
    return True
