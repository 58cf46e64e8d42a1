"""RNN, GRU and LSTM: every direction, activation, clip, peephole, ragged batch and layout.

The input's share of all gates is one product over all steps. Then a kernel walks through time with one workgroup per
direction and batch entry; long sequences take several launches, since no invocation may loop too often.
"""

from __future__ import annotations

from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, NotConstant, ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_GROUPS, MAX_ITERATIONS, Builder, Groups, Info, Shape, Variant, op, require
from webrt.ops import cells
from webrt.ops.product import Product, product_transposed
from webrt.ops.vectors import IDENTITY, Epilogue, finish, through_temp

MAX_HIDDEN = 2048
"""What the two vectors of shaders/lib/recurrent.wgsl hold."""
WORKGROUP = 256
MAX_LAUNCHES = 32
LONG = 4096
"""Steps that a plan takes at least where their number is not known before the run."""

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@dataclass(frozen=True)
class Sizes:
    """X is [steps, batch, width], or [batch, steps, width] where `layout` is 1."""

    steps: Dim
    batch: Dim
    width: Dim
    hidden: int
    directions: int
    gates: int
    layout: int

    @property
    def owners(self) -> Dim:
        """Sequences that are walked through."""
        return D.mul(self.directions, self.batch)


def _sizes(n: Node) -> Sizes:
    shape = n.input(0).known_shape
    if len(shape) != 3:
        raise ShapeError(f"X has rank {len(shape)}, 3 is needed")
    hidden = n.attr("hidden_size") or n.input(2).known_shape[-1]
    if not isinstance(hidden, int):
        raise NotConstant("the hidden size is not known before the run")
    directions = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(n.attr("direction"))
    if directions is None:
        raise InvalidModel(f"direction {n.attr('direction')!r} is not defined")
    layout = int(n.attr("layout", 0))
    steps, batch = (shape[1], shape[0]) if layout else (shape[0], shape[1])
    return Sizes(steps, batch, shape[2], hidden, directions, _GATES[n.op_type], layout)


def _shape(n: Node) -> list[Info]:
    s, dtype = _sizes(n), n.input(0).dtype
    y: Shape = (s.steps, s.directions, s.batch, s.hidden)
    if s.layout:
        y = (s.batch, s.steps, s.directions, s.hidden)
    end: Info = (dtype, tuple(d for k, d in enumerate(y) if k != s.layout))
    return [(dtype, y), end, end][: len(n.outputs)]


def _input_shapes(n: Node) -> str:
    """X, W, R, B, sequence_lens, initial states, P."""
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[n.op_type], 2 if n.attr("direction") == "bidirectional" else 1
    rows, state = f"{directions} GH", "B D H" if n.attr("layout", 0) else "D B H"
    x = "B T I" if n.attr("layout", 0) else "T B I"
    known = n.input(2).known_shape[-1] if n.input(2).rank else 0
    hidden = known if isinstance(known, int) else n.attr("hidden_size")
    if isinstance(hidden, int):
        rows = f"{directions} {gates * hidden}"
    bias, peepholes = (f"{directions} {k * hidden}" if isinstance(hidden, int) else "_ _" for k in (2 * gates, 3))
    state = state.replace("D", str(directions))
    return f"{x}, {rows} I, {rows} H, {bias}, B, {state}, {state}, {peepholes}"


@op("RNN", "GRU", "LSTM", since=7, shape=_shape, inputs=_input_shapes)
def recurrent(n: Node, b: Builder) -> None:
    require([v for k, v in enumerate(n.inputs) if k != 4], *T.FLOATS)
    s = _sizes(n)
    if s.hidden > MAX_HIDDEN:
        raise UnsupportedOp(f"a hidden size of {s.hidden}, more than {MAX_HIDDEN}")
    cells.check_weights(b, n, s.gates, s.hidden, s.directions)
    late = n.op_type == "GRU" and bool(n.attr("linear_before_reset", 0))
    inputs = _input_products(n, b, s, late)
    given = [n.input(k) if n.has(k) else None for k in ((5, 6) if n.op_type == "LSTM" else (5,))]
    room = [*given, None] if n.op_type == "GRU" and not late else given
    state = cells.initial_state(b, room, s.directions, s.batch, s.hidden, s.layout)
    y = through_temp(b, n.output(0)) if n.wants(0) else None
    _walk(n, b, s, inputs, state, y, late)
    if y is not None:
        finish(b, y, n.output(0), "recurrent")
    for k in range(len(given)):
        if n.wants(k + 1):
            cells.final_state(b, n.output(k + 1), state, k, s.layout)


def _input_products(n: Node, b: Builder, s: Sizes, late: bool) -> Value:
    """X·Wᵀ and the biases, [directions, rows, gates · hidden] in f32; a row is a step of an entry, in X's order."""
    rows, columns = D.mul(s.steps, s.batch), s.gates * s.hidden
    out = b.temp(T.F32, (s.directions, rows, columns))
    epilogue = IDENTITY
    if n.has(3):
        bias = cells.bias_sum(b, n.input(3), s.gates, s.hidden, 1 if late else 0)
        at = "i / (p.bias_rows * p.bias_width) * p.bias_width + i % p.bias_width"
        epilogue = Epilogue(f"return v + load_bias({at});", {"bias": bias}, {"bias_rows": rows, "bias_width": columns})
    sizes = Product(rows, columns, s.width, (s.directions,), (1,), (s.directions,))
    product_transposed(b, sizes, n.input(0), n.input(1), out, epilogue, "recurrent_inputs")
    return out


def _walk(n: Node, b: Builder, s: Sizes, inputs: Value, state: Value, y: Value | None, late: bool) -> None:
    reset = n.op_type == "GRU" and not late
    fns, params = cells.activations(n, _DEFAULTS[n.op_type], s.directions)
    reads = {"x": inputs, "r": cells.packed(b, n.input(2), s.gates, s.hidden)}
    fns += [_length(n, reads), _inputs(s.gates), _emit(y is not None)]
    fns += [cells.products("products", s.gates, range(2 if reset else s.gates))]
    fns += [cells.products("candidates", s.gates, [2])] if reset else []
    fns += _cell_parts(n, reads, late)
    writes = {"state": state} | ({"y": y} if y is not None else {})
    y_steps = _y_strides(s)
    params |= {
        "hidden": s.hidden, "batch": s.batch, "owners": s.owners, "all_units": D.mul(s.owners, s.hidden),
        "steps": s.steps, "rows": D.mul(s.steps, s.batch), "blocks": _blocks(s.hidden),
        "row_step": 1 if s.layout else s.batch, "row_batch": s.steps if s.layout else 1,
        "backward_from": {"forward": 2, "bidirectional": 1, "reverse": 0}[n.attr("direction")], **y_steps,
    }  # fmt: skip
    use = (*cells.USE, *(() if reset else (f"cell_{n.op_type.lower()}",)))
    for first, last in _spans(b, s, reset):
        variant = Variant(
            "recurrent_reset" if reset else "recurrent", _groups(s, first), fns=fns, use=use, vec={"r": 4}
        )
        b.launch(
            variant, reads=reads, writes=writes, params={**params, "first": first, "last": last}, name=n.op_type.lower()
        )


def _blocks(hidden: int) -> int:
    return -(-hidden // cells.BLOCK) * cells.BLOCK // 4


def _spans(b: Builder, s: Sizes, reset: bool) -> list[tuple[Dim, Dim]]:
    """(first step, step behind the last) of each launch."""
    turns = -(-s.hidden // WORKGROUP)
    each = 2 + turns * (2 + -(-s.hidden // cells.BLOCK)) * (2 if reset else 1)
    most = max(1, (MAX_ITERATIONS - 2 * turns) // each)
    if isinstance(s.steps, int):
        count = max(1, -(-s.steps // most))
        if count > MAX_LAUNCHES:
            raise UnsupportedOp(f"{s.steps} steps of {s.hidden} units, more than {MAX_LAUNCHES * most}")
    else:
        count = min(MAX_LAUNCHES, -(-LONG // most))
        b.check(D.le(s.steps, count * most), f"more than {count * most} steps of {s.hidden} units")
    return [(k * most, D.minimum(s.steps, (k + 1) * most)) for k in range(count)]


def _groups(s: Sizes, first: Dim) -> Groups:
    """One workgroup per owner; none where the sequence ends before the launch's first step."""
    owners = s.owners if first == 0 else D.mul(s.owners, D.lt(first, s.steps))
    return D.minimum(owners, MAX_GROUPS), D.ceildiv(owners, MAX_GROUPS), 1


def _length(n: Node, reads: dict[str, Value]) -> str:
    """`length(n)`: the steps of batch entry n."""
    if not n.has(4):
        return "fn length(n: u32) -> u32 { return p.steps; }"
    require([n.input(4)], T.I32)
    reads["lengths"] = n.input(4)
    return "fn length(n: u32) -> u32 { return u32(max(load_lengths(n), 0)); }"


def _inputs(gates: int) -> str:
    """`inputs(d, row, u)`: the input's share of unit u's gates."""
    values = ", ".join(f"x[at + {g}u * p.hidden]" if g < gates else "0.0" for g in range(4))
    return f"""fn inputs(d: u32, row: u32, u: u32) -> vec4<f32> {{
  let at = (d * p.rows + row) * {gates}u * p.hidden + u;
  return vec4<f32>({values});
}}"""


def _y_strides(s: Sizes) -> dict[str, Dim]:
    row = D.mul(s.directions, s.hidden)
    if s.layout:
        return {"y_step": row, "y_direction": s.hidden, "y_batch": D.mul(s.steps, row)}
    return {"y_step": D.mul(s.batch, row), "y_direction": D.mul(s.batch, s.hidden), "y_batch": s.hidden}


def _emit(wanted: bool) -> str:
    store = "y[t * p.y_step + d * p.y_direction + n * p.y_batch + u] = v;" if wanted else ""
    return f"fn emit(t: u32, d: u32, n: u32, u: u32, v: f32) {{ {store} }}"


def _cell_parts(n: Node, reads: dict[str, Value], late: bool) -> list[str]:
    """What shaders/lib/cell_*.wgsl leave open."""
    if late:
        bias = "0.0"
        if n.has(3):
            reads["bias"], bias = n.input(3), "load_bias((d * 6u + 5u) * p.hidden + u)"
        return [f"fn late_bias(d: u32, u: u32) -> f32 {{ return {bias}; }}"]
    if n.op_type != "LSTM":
        return []
    weights = "vec3<f32>()"
    if n.has(7):
        reads["peepholes"] = n.input(7)
        at = [f"load_peepholes((d * 3u + {k}u) * p.hidden + u)" for k in range(3)]
        weights = f"vec3<f32>({', '.join(at)})"
    coupled = bool(n.attr("input_forget", 0))
    return [
        f"fn peephole(d: u32, u: u32) -> vec3<f32> {{ return {weights}; }}",
        f"fn forget(d: u32, v: f32, i: f32) -> f32 {{ return {'1.0 - i' if coupled else 'act_f(d, v)'}; }}",
    ]
