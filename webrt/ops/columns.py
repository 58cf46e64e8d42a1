"""What an epilogue reads of rows of fours: once for a column of the output, or four elements at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.ops.loaders import epilogue4, in_fours
from webrt.ops.vectors import Epilogue

_AXIS = re.compile(r"let r(\d+) = i / p\.(\w+);\nlet c\1 = i - r\1 \* p\.\2;\n")
"""How `broadcasting.address` splits an index at the last axis."""
_COLUMN = "i % p.n"


@dataclass(frozen=True)
class Fours:
    """The functions `epilogue4(v, four, …)` for elements 4 · four …, which has the fours of `columns` that its column
    has as more arguments in_<name>. Those of `columns` and `whole` are bound as vec4s."""

    text: str
    whole: tuple[str, ...]
    columns: tuple[str, ...]


def by_columns(epilogue: Epilogue, n: Dim) -> Fours:
    """That of an epilogue whose output has rows of n elements, whole fours."""
    body, columns = epilogue.body, list[str]()
    for k, v in epilogue.reads.items():
        shorter = _without(body, k, epilogue, n) if _is_row(v, n) else None
        if shorter is not None:
            body = shorter
            columns.append(k)
    return Fours(epilogue4(epilogue, True, body, columns), in_fours(epilogue), tuple(columns))


def _is_row(v: Value, n: Dim) -> bool:
    return v.dtype == T.F32 and v.elements == n and D.mod(n, 4) == 0


def _without(body: str, name: str, epilogue: Epilogue, n: Dim) -> str | None:
    """The body that has the operand's element of the column in a variable, instead of loading it; None where it loads
    otherwise."""
    load, axis = f"load_{name}(", _AXIS.search(body)
    if body.count(load) != 1:
        return None
    if f"{load}{_COLUMN})" in body:
        return body.replace(f"{load}{_COLUMN})", name)
    statement = f"let {name} = {load}c{axis[1]});" if axis is not None else ""
    if axis is None or statement not in body or epilogue.params.get(axis[2]) != n:
        return None
    body = body.replace(statement, "")
    unused = not re.search(rf"\b[rc]{axis[1]}\b", body.replace(axis[0], ""))
    return body.replace(axis[0], "") if unused else body
