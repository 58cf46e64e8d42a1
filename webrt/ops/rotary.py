"""RotaryEmbedding of opset 23 and of com.microsoft. Sources: the ONNX operator text; ContribOperators.md."""

from __future__ import annotations

from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, op, require, same_as_first

MS = "com.microsoft"


@dataclass(frozen=True)
class Turn:
    """What is turned: `head` elements in a head, of which the first `width` (0: all) take part; neighbours form a pair
    where `interleaved`, else element k and k + width/2. `ids` are positions, as `_position` reads them."""

    cos: Value
    sin: Value
    ids: Value | None
    head: Dim
    width: int = 0
    interleaved: bool = False


def _inputs(n: Node) -> str:
    """Tables by position, or, without positions, by batch entry and step."""
    x = "B _ T _" if n.input(0).rank == 4 else "B T _"
    return f"{x}, P D, P D, B T" if n.has(3) else f"{x}, B T D, B T D"


@op("RotaryEmbedding", shape=same_as_first, since=23, inputs=_inputs)
def rotary_embedding(n: Node, b: Builder) -> None:
    ids = n.input(3) if n.has(3) else None
    head = _head_size(n, int(n.attr("num_heads", 0)))
    width, pairs = int(n.attr("rotary_embedding_dim")), bool(n.attr("interleaved"))
    rotate(b, n.output(), n.input(0), Turn(n.input(1), n.input(2), ids, head, width, pairs))


def _ms_inputs(n: Node) -> str:
    """Positions of each step, or one for the first."""
    x = "B _ T _" if n.input(0).rank == 4 else "B T _"
    return f"{x}, B T, P D, P D" if n.input(1).rank == 2 else f"{x}, 1, P D, P D"


@op("RotaryEmbedding", shape=same_as_first, domain=MS, inputs=_ms_inputs)
def rotary_embedding_microsoft(n: Node, b: Builder) -> None:
    if n.attr("is_packed_batching", 0) or n.attr("scale", 1.0) != 1.0:
        raise UnsupportedOp("RotaryEmbedding with packed batches or a scale")
    cos, heads = n.input(2), int(n.attr("num_heads", 0))
    head = _head_size(n, heads) if heads or n.input(0).rank == 4 else D.mul(cos.known_shape[-1], 2)
    width, pairs = int(n.attr("rotary_embedding_dim", 0)), bool(n.attr("interleaved", 0))
    rotate(b, n.output(), n.input(0), Turn(cos, n.input(3), n.input(1), head, width, pairs))


def _head_size(n: Node, heads: int) -> Dim:
    shape = n.input(0).known_shape
    if len(shape) == 4:
        return shape[3]
    if heads < 1:
        raise InvalidModel("RotaryEmbedding of a tensor of rank 3 needs num_heads")
    return D.floordiv(shape[2], heads)


def rotate(b: Builder, out: Value, x: Value, turn: Turn) -> None:
    """x₁cos - x₂sin and x₁sin + x₂cos for the pairs of each head; x is [N, S, heads·D] or [N, heads, S, D]."""
    require([x, turn.cos, turn.sin], *T.FLOATS)
    require([turn.ids], T.I64, T.I32)
    width = turn.width or turn.head
    half = D.floordiv(width, 2)
    b.check(D.eq(turn.cos.known_shape[-1], half), "the cos cache is not half as wide as what is rotated")
    by_head = x.rank == 4
    shape = x.known_shape
    params: dict[str, Dim] = {"head": turn.head, "width": width, "half": half, "length": shape[2 if by_head else 1]}
    params["heads"] = shape[1] if by_head else D.floordiv(shape[2], turn.head)
    token = "(rest / (p.length * p.heads)) * p.length + rest % p.length" if by_head else "rest / p.heads"
    pair = ("k / 2u", "(k & 1u) == 0u", "1u") if turn.interleaved else ("k % p.half", "k < p.half", "p.half")
    text = _ELEMENT.format(token=token, place=pair[0], first=pair[1], step=pair[2], position=_position(turn.ids))
    reads = {"x": x, "cosines": turn.cos, "sines": turn.sin} | ({"ids": turn.ids} if turn.ids is not None else {})
    b.map(out, text, reads=reads, params=params, name="rotary")


def _position(ids: Value | None) -> str:
    """The row of the caches for token t: its id; counted from the only id; or t where the caches are per token."""
    if ids is None:
        return "t"
    word = ".x" if ids.dtype == T.I64 else ""
    return f"u32(load_ids(0u){word}) + t % p.length" if ids.rank == 1 else f"u32(load_ids(t){word})"


_ELEMENT = """let k = i % p.head;
let rest = i / p.head;
let v = load_x(i);
if (k >= p.width) {{ return v; }}
let t = {token};
let at = ({position}) * p.half + {place};
let c = load_cosines(at);
let s = load_sines(at);
if ({first}) {{ return c * v - s * load_x(i + {step}); }}
return s * load_x(i - {step}) + c * v;"""
