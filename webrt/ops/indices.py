"""Element indices read on the device: int32 or int64 (or any number, for OneHot), negative ones count from the end."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Value
from webrt.lowering import Builder
from webrt.ops.view import element_type

_WRAPPED: dict[str, str] = {
    "i32": """  let v = load_{name}(k);
  let w = select(v, v + i32(size), v < 0);
  return select(OUTSIDE, u32(w), w >= 0 && w < i32(size));""",
    "u32": """  let v = load_{name}(k);
  return select(OUTSIDE, v, v < size);""",
    "f32": """  let v = load_{name}(k);
  if (!(abs(v) < 2147483008.0)) {{ return OUTSIDE; }}
  let w = select(i32(v), i32(v) + i32(size), i32(v) < 0);
  return select(OUTSIDE, u32(w), w >= 0 && w < i32(size));""",
    "vec2<u32>": """  let v = load_{name}(k);
  let low = select(v.x, v.x + size, v.y != 0u);
  return select(OUTSIDE, low, (v.y == 0u || v.y == {negative}) && low < size);""",
}


def index_fns(name: str, v: Value) -> list[str]:
    """Functions of the binding `name`: `wrapped_name(k, size)`, its element k as an index below size, or OUTSIDE;
    and `index_name(k, size)`, which clamps where an index is out of range."""
    dtype: DType = element_type(v)
    body = _WRAPPED[dtype.wgsl].format(name=name, negative="0u" if dtype == T.U64 else "0xffffffffu")
    wrapped = f"const OUTSIDE = 0xffffffffu;\nfn wrapped_{name}(k: u32, size: u32) -> u32 {{\n{body}\n}}"
    clamped = f"fn index_{name}(k: u32, size: u32) -> u32 {{ return min(wrapped_{name}(k, size), size - 1u); }}"
    return [wrapped, clamped]


def check_indices(b: Builder, indices: Value, size: Dim, axis: int, part: int | None = None) -> None:
    """Refuses an axis without elements that is to be indexed, and indices known before the run that are out of its
    range; `part` is the column of index tuples that counts. Other indices are clamped or passed over on the device."""
    b.check(D.maximum(D.lt(0, size), D.eq(indices.elements, 0)), f"axis {axis} has no elements, an index needs one")
    known = indices.const if part is None or indices.const is None else indices.const[..., part]
    if known is None or not known.size:
        return
    low, high = int(known.min()), int(known.max())
    b.check(D.lt(high, size), f"index {high} is out of range for axis {axis} of size {size}")
    b.check(D.le(-low, size), f"index {low} is out of range for axis {axis} of size {size}")


def check_others(b: Builder, indices: Value, x: Value, axis: int) -> None:
    """Beside the axis, indices may not have more places than the tensor."""
    for a, (places, size) in enumerate(zip(indices.known_shape, x.known_shape)):
        if a != axis:
            b.check(D.le(places, size), f"indices have {places} places along axis {a}, the data {size}")


def known_index(v: Value, size: Dim) -> Dim | None:
    """The single index that `v` holds, not negative, where it is known before the run and inside 0 … size - 1."""
    if v.contents is not None and v.contents.size == 1:
        index: Dim = v.contents.flat[0]
    elif v.const is not None and v.const.size == 1:
        index = int(v.const.flat[0])
    else:
        return None
    if not D.at_least(index, 0):
        index = D.select(D.lt(index, 0), D.add(index, size), index)
    return index if D.at_least(index, 0) and D.at_least(D.sub(size, 1), index) else None
