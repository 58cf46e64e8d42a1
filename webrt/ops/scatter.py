"""ScatterElements, Scatter, ScatterND. Results do not depend on timing.

With a reduction, or with few updates, each output element looks for the updates that name it, in order. Otherwise each
update notes its number at the element that it names, the highest number stays (the last update wins), and one more
kernel copies. An index out of range updates nothing.
"""

from __future__ import annotations

from typing import TypeAlias

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InvalidModel, NotConstant, ShapeError, UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid, normalize_axis, op, require, same_as_first, strides
from webrt.ops.indices import check_indices, check_others, index_fns
from webrt.ops.view import RAW, bits_of, coordinates, element_type, unit, unit_type

Params: TypeAlias = dict[str, Dim | float]

FEW = 32
"""Up to so many updates, looking through all of them costs less than two more kernels."""

_INT64 = {"add": "i64_add(acc, v)", "mul": "i64_mul(acc, v)"}
_WORD = {"add": "acc + v", "mul": "acc * v", "min": "min(acc, v)", "max": "max(acc, v)"}
_FLOAT = _WORD | {"min": "min_nan(acc, v)", "max": "max_nan(acc, v)"}


def _combined(reduction: str, dtype: DType) -> str:
    """The new value of an element from its old one `acc` and an update `v`."""
    if reduction == "none":
        return "v"
    if reduction not in _WORD:
        raise UnsupportedOp(f"reduction {reduction!r}")
    if dtype == T.BOOL:
        raise UnsupportedType("a reduction over bool")
    if dtype in T.INTS64:
        less = "i64_lt" if dtype == T.I64 else "u64_lt"
        order = f"{less}(v, acc)" if reduction == "min" else f"{less}(acc, v)"
        return _INT64.get(reduction, f"select(acc, v, {order})")
    return (_FLOAT if dtype in T.FLOATS else _WORD)[reduction]


def _few(n: Node, count: Dim) -> bool:
    """Whether each element may just look through all updates."""
    return n.attr("reduction", "none") != "none" or (isinstance(count, int) and count <= FEW)


def owners(b: Builder, indices: Value, slots: Dim, count: Dim, slot: str, params: Params) -> Value:
    """uint32 [slots]: 1 + the last of `count` updates that name a slot, 0 where none does. `slot` is the body of
    `fn slot(i: u32) -> u32`, the slot of update i or OUTSIDE; it reads `indices` as indices.index_fns does."""
    owner = b.temp(T.U32, (slots,))
    b.map(owner, "return 0u;", name="fill")
    fns = [*index_fns("indices", indices), f"fn slot(i: u32) -> u32 {{\n{slot}\n}}"]
    b.launch(
        Variant("scatter_owner", grid(count), fns=fns), reads={"indices": indices}, writes={},
        atomics={"owner": owner}, params={"n": count, **params}, name="scatter_owner",
    )  # fmt: skip
    return owner


def _by_owner(b: Builder, n: Node, slots: Dim, count: Dim, inner: Dim, slot: str, params: Params) -> None:
    """Each update replaces an element of `inner` numbers."""
    x, updates, out = n.input(0), n.input(2), n.output()
    owner = owners(b, n.input(1), slots, count, slot, params)
    k = unit(bits_of(x), (inner,))
    kind, vec = unit_type(bits_of(x) * k)
    names = ("x", "updates", "out")
    old, new = ("x[i]", "updates[at]") if vec == 4 else ("load_x(i)", "load_updates(at)")
    text = f"""let by = owner[i / p.inner];
if (by == 0u) {{ return {old}; }}
let at = (by - 1u) * p.inner + i % p.inner;
return {new};"""
    b.map(
        out, text, reads={"x": x, "updates": updates, "owner": owner}, params={"inner": D.floordiv(inner, k)},
        as_type=dict.fromkeys(names, kind), vec=dict.fromkeys(names, vec), name="scatter",
    )  # fmt: skip


def _scan(b: Builder, n: Node, count: Dim, before: str, match: str, update: str, params: Params) -> None:
    """`before` prepares; update k applies where `match` holds and is element `update` of the updates."""
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    reduction, dtype = str(n.attr("reduction", "none")), element_type(x)
    if isinstance(count, int) and count >= MAX_ITERATIONS:
        raise UnsupportedOp(f"{count} updates for one element, kernels scan up to {MAX_ITERATIONS}")
    b.check(D.lt(count, MAX_ITERATIONS), f"{n.op_type}: more than {MAX_ITERATIONS} updates for one element")
    rule = _combined(reduction, dtype)
    last = reduction == "none"
    k = "let k = p.count - 1u - q;" if last else "let k = q;"
    body = "return load_updates({0});" if last else f"let v = load_updates({{0}}); acc = {rule};"
    text = f"""{before}var acc = load_x(i);
for (var q = 0u; q < p.count; q++) {{
  {k}
  if ({match}) {{ {body.format(update)} }}
}}
return acc;"""
    kind = {name: RAW[dtype.bits] for name in ("x", "updates", "out")} if last else {}
    b.map(
        n.output(), text, reads={"x": x, "indices": indices, "updates": updates}, params={"count": count, **params},
        fns=index_fns("indices", indices), use=["nan"] if dtype in T.FLOATS and not last else [], as_type=kind,
        name=n.op_type.lower(),
    )  # fmt: skip


def _elements_layout(x: Value, indices: Value, axis: int) -> tuple[list[Dim], list[Dim], int]:
    """Shapes of data and indices, and the axis: as (outer, axis, inner) where only the axis differs in size."""
    shape, places = list(x.known_shape), list(indices.known_shape)
    if all(d == e for a, (d, e) in enumerate(zip(shape, places)) if a != axis):
        outer, inner = D.prod(shape[:axis]), D.prod(shape[axis + 1 :])
        return [outer, shape[axis], inner], [outer, places[axis], inner], 1
    return shape, places, axis


@op("Scatter", since=9, until=10, shape=same_as_first)
@op("ScatterElements", since=11, shape=same_as_first)
def scatter_elements(n: Node, b: Builder) -> None:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    require([indices], T.I32, T.I64)
    if not x.rank or indices.rank != x.rank or updates.rank != x.rank:
        raise InvalidModel(f"ranks of data, indices and updates differ: {x.rank}, {indices.rank}, {updates.rank}")
    for a, (d, e) in enumerate(zip(indices.known_shape, updates.known_shape)):
        b.check(D.eq(d, e), f"ScatterElements: indices and updates differ along axis {a}: {d} and {e}")
    axis = normalize_axis(n.attr("axis", 0), x.rank)
    check_indices(b, indices, x.known_shape[axis], axis)
    check_others(b, indices, x, axis)
    shape, places, axis = _elements_layout(x, indices, axis)
    if not _few(n, places[axis]):
        text, params = coordinates(places)
        params |= {f"s{a}": s for a, s in enumerate(strides(shape))} | {"size": shape[axis]}
        text += "let w = wrapped_indices(i, p.size);\nif (w == OUTSIDE) { return w; }\nreturn "
        text += " + ".join(f"{'w' if a == axis else f'c{a}'} * p.s{a}" for a in range(len(shape))) + ";"
        _by_owner(b, n, x.elements, indices.elements, 1, text, params)
        return
    text, params = coordinates(shape)
    params |= {f"t{a}": t for a, t in enumerate(strides(places))} | {"size": shape[axis]}
    rest = [a for a in range(len(shape)) if a != axis]
    outside = [a for a in rest if shape[a] != places[a]]
    if outside:
        params |= {f"m{a}": places[a] for a in outside}
        text += f"if ({' || '.join(f'c{a} >= p.m{a}' for a in outside)}) {{ return load_x(i); }}\n"
    text += f"let base = {' + '.join(f'c{a} * p.t{a}' for a in rest) or '0u'};\n"
    at = f"base + k * p.t{axis}"
    _scan(b, n, places[axis], text, f"wrapped_indices({at}, p.size) == c{axis}", at, params)


def _scatter_nd_inputs(n: Node) -> str:
    """updates: the index tuples' places, then the axes that tuples do not reach."""
    data, indices = n.input(0).known_shape, n.input(1).known_shape
    depth = indices[-1] if indices else 0
    if not isinstance(depth, int) or depth > len(data):
        return ""
    places = [f"I{k}" for k in range(len(indices) - 1)]
    axes = [f"D{k}" for k in range(len(data))]
    return f"{' '.join(axes)}, {' '.join([*places, '_'])}, {' '.join([*places, *axes[depth:]]) or '*'}"


@op("ScatterND", since=11, shape=same_as_first, inputs=_scatter_nd_inputs)
def scatter_nd(n: Node, b: Builder) -> None:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    require([indices], T.I64)
    shape, places = x.known_shape, indices.known_shape
    length = places[-1] if places else 0
    if not isinstance(length, int):
        raise NotConstant(f"the length of index tuples of {indices!r} is not known before the run")
    if not 1 <= length <= len(shape):
        raise ShapeError(f"index tuples of {length} do not fit rank {len(shape)}")
    inner, count = D.prod(shape[length:]), D.prod(places[:-1])
    b.check(D.eq(updates.elements, D.mul(inner, count)), "ScatterND: updates do not fit data and indices")
    for q in range(length):
        check_indices(b, indices, shape[q], q, q)
    params: Params = {f"d{q}": shape[q] for q in range(length)}
    if not _few(n, count):
        lines = ["var at = 0u;"]
        for q in range(length):
            lines.append(f"let w{q} = wrapped_indices(i * {length}u + {q}u, p.d{q});")
            lines.append(f"if (w{q} == OUTSIDE) {{ return OUTSIDE; }}\nat = at * p.d{q} + w{q};")
        text = "\n".join([*lines, "return at;"])
        _by_owner(b, n, D.prod(shape[:length]), count, inner, text, params)
        return
    params["inner"] = inner
    text = "let j = i % p.inner;\nvar r = i / p.inner;\n"
    for q in reversed(range(length)):
        text += f"let c{q} = r % p.d{q}; r /= p.d{q};\n" if q else "let c0 = r;\n"
    match = " && ".join(f"wrapped_indices(k * {length}u + {q}u, p.d{q}) == c{q}" for q in range(length))
    _scan(b, n, count, text, match, "k * p.inner + j", params)
