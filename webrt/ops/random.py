"""RandomNormal, RandomUniform, Bernoulli and Multinomial by a counter-based generator.

Element i of a node draws from Philox at counter i, keyed by the seed and the node's output: a seed gives the same
numbers at each run and on each device. Without one the key has a word that each run draws anew.
"""

from __future__ import annotations

import zlib

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Info, op, require
from webrt.ops.view import element_type
from webrt.plan import DRAWN

MAX_CLASSES = 20_000
"""Classes of a Multinomial that one invocation walks three times."""


def seed_params(n: Node) -> dict[str, Dim | float]:
    """The key of the node's generator, for `draw`."""
    names = (v.name for v in n.outputs if v is not None)
    own = zlib.crc32(next(names, "").encode())
    return {"seed": float(n.attrs["seed"].f) if "seed" in n.attrs else D.var(DRAWN), "node": own}


DRAW = "fn draw(i: u32) -> vec4<u32> { return philox(vec4<u32>(i, 0u, 0u, 0u), vec2<u32>(p.seed, p.node)); }"


def _random(n: Node, b: Builder, out: Value, text: str, **given: Value) -> None:
    params = {k: float(n.attr(k)) for k in ("mean", "scale", "low", "high") if f"p.{k})" in text}
    b.map(
        out, text, reads=given, params={**seed_params(n), **params}, fns=[DRAW], use=("philox",), name=n.op_type.lower()
    )


def _type(n: Node, fallback: DType | None) -> DType | None:
    code = int(n.attr("dtype", 0) or 0)
    return dtype_of(code) if code else fallback


def _made(n: Node) -> list[Info]:
    return [(_type(n, T.F32), tuple(int(d) for d in n.attr("shape")))]


def _like(n: Node) -> list[Info]:
    return [(_type(n, n.input(0).dtype), n.input(0).shape)]


@op("RandomNormal", shape=_made)
@op("RandomNormalLike", shape=_like)
def random_normal(n: Node, b: Builder) -> None:
    """Box and Muller's transform."""
    require([n.output()], T.F32, T.F16, T.BF16)
    text = """let w = draw(i);
let r = sqrt(-2.0 * log(unit_interval(w.x) + 0.000000059604644775390625));
return bitcast<f32>(p.mean) + bitcast<f32>(p.scale) * r * cos(6.283185307179586 * unit_interval(w.y));"""
    _random(n, b, n.output(), text)


@op("RandomUniform", shape=_made)
@op("RandomUniformLike", shape=_like)
def random_uniform(n: Node, b: Builder) -> None:
    require([n.output()], T.F32, T.F16, T.BF16)
    text = "let low = bitcast<f32>(p.low);\nreturn low + unit_interval(draw(i).x) * (bitcast<f32>(p.high) - low);"
    _random(n, b, n.output(), text)


@op("Bernoulli", since=15, shape=_like)
def bernoulli(n: Node, b: Builder) -> None:
    x, out = n.input(0), n.output()
    require([x], T.F32, T.F16, T.BF16)
    pairs = {"bool": ("false", "true"), "vec2<u32>": ("vec2<u32>()", "vec2<u32>(1u, 0u)")}
    zero, one = pairs.get(element_type(out).wgsl, ("Out(0)", "Out(1)"))
    _random(n, b, out, f"return select({zero}, {one}, unit_interval(draw(i).x) < load_x(i));", x=x)


@op("Multinomial", shape=lambda n: [(_type(n, T.I32), (n.input(0).known_shape[0], int(n.attr("sample_size"))))],
    inputs="_ _")  # fmt: skip
def multinomial(n: Node, b: Builder) -> None:
    """The first class at which the sum of the weights exp(logit - largest) passes a share of the whole."""
    x, out = n.input(0), n.output()
    require([x], T.F32, T.F16, T.BF16)
    classes = x.known_shape[1]
    b.check(D.lt(classes, MAX_CLASSES), f"Multinomial of more than {MAX_CLASSES} classes")
    b.check(D.lt(0, classes), "Multinomial of no class")
    result = "vec2<u32>(k, 0u)" if element_type(out) == T.I64 else "Out(k)"
    text = f"""let base = (i / p.samples) * p.classes;
var top = load_x(base);
for (var k = 1u; k < p.classes; k += 1u) {{ top = max(top, load_x(base + k)); }}
var whole = 0.0;
for (var k = 0u; k < p.classes; k += 1u) {{ whole += exp(load_x(base + k) - top); }}
let share = unit_interval(draw(i).x) * whole;
var sum = 0.0;
var k = 0u;
for (; k + 1u < p.classes; k += 1u) {{
  sum += exp(load_x(base + k) - top);
  if (sum > share) {{ break; }}
}}
return {result};"""
    params = {**seed_params(n), "samples": int(n.attr("sample_size")), "classes": classes}
    b.map(out, text, reads={"x": x}, params=params, fns=[DRAW], use=("philox",), name="multinomial")
