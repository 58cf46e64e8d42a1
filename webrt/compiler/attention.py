"""Attention from its pieces: scaled products, masks, softmax, the cleared rows that exporters write, transposes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.groups import grow, steps_of, stored
from webrt.compiler.lines import Lines
from webrt.compiler.rewrite import known_ints, number
from webrt.compiler.seen import Seen, through, trace
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Window, normalize_axis, strides
from webrt.ops.attend import attend
from webrt.ops.composed import epilogue_steps
from webrt.ops.head_views import Empty, Heads
from webrt.ops.vectors import IDENTITY, Epilogue
from webrt.ops.view import View


@dataclass
class Pieces:
    """Lines of one attention: `logits` = q · kᵀ, what is done with them, the second product. `empty`: what rows are of
    which nothing is seen. `lines` are all that it takes in."""

    logits: Node
    members: list[int]
    product: Node
    empty: Empty
    lines: set[int] = field(default_factory=set)


def fuse_attention(lines: Lines) -> None:
    """softmax(f(q · kᵀ)) · v with the transposes, splits and factors around it → two kernels of ops/attend.py."""
    for i, p in enumerate(lines.placed):
        if p.how == "kernel" and p.node.op == "Softmax":
            pieces = _pieces(lines, i)
            if pieces is not None:
                _rewrite(lines, pieces)
    lines.drop_unread()


def _pieces(lines: Lines, softmax: int) -> Pieces | None:
    node = lines.placed[softmax].node
    x = node.input(0)
    if x.dtype not in T.FLOATS or normalize_axis(int(node.attr("axis")), x.rank) != x.rank - 1:
        return None
    weights, empty, taken = _cleared(lines, node, softmax)
    product = lines.only_reader(weights)
    if product is not None and product.op == "Cast" and product.output().dtype in T.FLOATS:
        weights = product.output()
        taken.add(lines.maker[weights])
        product = lines.only_reader(weights)
    if product is None or product.op != "MatMul" or product.input(0) is not weights:
        return None
    i = lines.maker.get(x)
    root = lines.formula(i) if i is not None else None
    members = grow(lines, i, root) if i is not None and root is not None and lines.only_for(x, {softmax}) else []
    logits = _logits(lines, members, x, softmax)
    if logits is None:
        return None
    taken |= {softmax, *members, lines.maker[logits.output()], lines.maker[product.output()]}
    return Pieces(logits, members, product, empty, taken)


def _cleared(lines: Lines, softmax: Node, index: int) -> tuple[Value, Empty, set[int]]:
    """The weights that are used: the softmax, Where(IsNaN(softmax), 0, softmax), or 0 where a mask hides the row."""
    weights = softmax.output()
    hidden = _hidden(lines, softmax)
    if hidden:
        return lines.placed[max(hidden)].node.output(), Empty.HIDDEN, hidden
    readers = {lines.placed[i].node.op: i for i in lines.readers.get(weights, ())}
    if set(readers) != {"IsNaN", "Where"} or weights in lines.kept or len(lines.readers[weights]) != 2:
        return weights, Empty.NAN, set()
    test, choice = (lines.placed[readers[op]].node for op in ("IsNaN", "Where"))
    fits = lines.only_reader(test.output()) is choice and lines.placed[readers["Where"]].how == "kernel"
    if fits and choice.inputs[::2] == [test.output(), weights] and number(choice.input(1)) == 0.0:
        return choice.output(), Empty.ZERO, set(readers.values())
    return weights, Empty.NAN, set()


def _hidden(lines: Lines, softmax: Node) -> set[int]:
    """The lines of Where(Equal(ReduceMax(mask), -inf), 0, softmax), as ONNX's Attention has it, where the mask is what
    the softmax's input was added to, or is one number everywhere."""
    choice = lines.only_reader(softmax.output())
    if choice is None or choice.op != "Where" or choice.input(2) is not softmax.output():
        return set()
    test = lines.made_by(choice.input(0), "Equal")
    most = lines.made_by(test.input(0), "ReduceMax") if test is not None else None
    if test is None or most is None or lines.only_reader(most.output()) is not test:
        return set()
    mask, added = most.input(0), lines.made_by(softmax.input(0), "Add")
    masks = lines.made_by(mask, "ConstantOfShape") is not None or (added is not None and mask in added.inputs)
    axes = known_ints(most, 1, "axes")
    last = axes is not None and [normalize_axis(a, mask.rank) for a in axes] == [mask.rank - 1]
    fits = lines.only_reader(test.output()) is choice and bool(most.attr("keepdims", 1)) and last and masks
    if not fits or number(choice.input(1)) != 0.0 or number(test.input(1)) != -math.inf:
        return set()
    return {lines.maker[n.output()] for n in (choice, test, most)}


def _logits(lines: Lines, members: list[int], x: Value, softmax: int) -> Node | None:
    """The product whose result the members, and nobody else, make the softmax's input of."""
    for v in stored(lines, members) if members else {x}:
        node = lines.made_by(v, "MatMul")
        if node is not None and v.shape == x.shape and lines.only_for(v, members or {softmax}):
            return node
    return None


def _rewrite(lines: Lines, pieces: Pieces) -> None:
    q, k = _operand(lines, pieces.logits, 0), _operand(lines, pieces.logits, 1)
    v = _operand(lines, pieces.product, 1, scaled=False)
    if q is None or k is None or v is None:
        return
    once_k, once_v = _shared(lines, k), _shared(lines, v, scaled=False)
    if once_k is not None and once_v is not None:
        k, v = once_k, once_v
    if not _fit(q, k, v):
        return
    k = replace(k, view=k.view.permute((0, 1, 3, 2)))
    out, last = _result(lines, pieces)
    if out is None:
        return
    epilogue: Epilogue = IDENTITY
    builder = Builder(lines.target, f"{last}.Attention")
    try:
        if pieces.members:
            epilogue = epilogue_steps(steps_of(lines, pieces.members), pieces.logits.output())
        if q.scale * k.scale != 1.0:
            epilogue = epilogue.following("v * bitcast<f32>(p.alpha)", {"alpha": q.scale * k.scale})
        attend(builder, Heads(q.x, q.view), Heads(k.x, k.view), Heads(v.x, v.view), out, epilogue, pieces.empty)
    except (UnsupportedOp, UnsupportedType):
        return
    root = lines.placed[last].node
    operands = [q.x, k.x, v.x, *epilogue.reads.values()]
    node = Node("Attention", "", root.name, [*operands], [out.x], 23, {}, [], root.sources)
    lines.merge(last, sorted(pieces.lines - {last}), builder, node)


def _operand(lines: Lines, node: Node, index: int, scaled: bool = True) -> Seen | None:
    """An operand of a product, [batch, heads, rows, columns], as a view of what it was before it was moved about."""
    x = node.input(index)
    if x.shape is None or not 2 <= x.rank <= 4:
        return None
    whole = View.of((*[1] * (4 - x.rank), *x.shape))
    return trace(lines, Seen(x, whole), scaled)


def _shared(lines: Lines, seen: Seen, scaled: bool = True) -> Seen | None:
    """Heads that are several neighbours' each, before Expand and Reshape made one of them for every neighbour."""
    i = lines.maker.get(seen.x)
    moves = [m for m in lines.placed[i].moves if m[0] is seen.x] if i is not None else []
    if len(moves) != 1:
        return None
    _, source, view = moves[0]
    if isinstance(source, Window) or len(view.shape) != 5:
        return None
    batch, groups, times, steps, head = view.shape
    own, repeated = strides((batch, groups, steps, head)), strides((batch, D.mul(groups, times), steps, head))
    places = [repeated.index(s) for s in seen.view.strides if s in repeated]
    if view.strides[2] != 0 or seen.view.offset != 0 or places[:2] != [0, 1] or sorted(places) != [0, 1, 2, 3]:
        return None
    if seen.view.shape != tuple((batch, D.mul(groups, times), steps, head)[k] for k in places):
        return None
    inner = View((batch, groups, steps, head), (*view.strides[:2], *view.strides[3:]), view.offset)
    once = View(tuple(inner.shape[k] for k in places), tuple(own[k] for k in places))
    further = through(inner, once)
    return None if further is None else trace(lines, replace(seen, x=source, view=further), scaled)


def _fit(q: Seen, k: Seen, v: Seen) -> bool:
    """Whether keys and values are there for all queries: heads of their own, or for several neighbouring ones; as many
    batch entries, or one."""
    batch, heads = q.view.shape[:2]
    return (
        all(x.view.shape[0] in (1, batch) and x.view.shape[1] == k.view.shape[1] for x in (k, v))
        and (k.view.shape[1] in (1, heads) or D.mod(heads, k.view.shape[1]) == 0)
        and all(x.x.dtype == q.x.dtype for x in (k, v))
    )


def _result(lines: Lines, pieces: Pieces) -> tuple[Heads | None, int]:
    """Where the result goes: past the transpose that alone reads it."""
    value = pieces.product.output()
    if value.shape is None or not 2 <= value.rank <= 4:
        return None, -1
    seen = Heads(value, View.of((*[1] * (4 - value.rank), *value.shape)))
    last, found = lines.maker[value], seen
    passed: set[int] = set()
    while (node := lines.only_reader(seen.x, alias=True)) is not None:
        i = lines.maker[node.output()]
        view: View | None = seen.view
        if node.op == "Transpose" and node.input(0).shape is not None:
            rank = node.input(0).rank
            perm = [int(a) for a in node.attr("perm") or reversed(range(rank))]
            inverse = [perm.index(a) for a in range(rank)]
            view = through(View.of(node.output().known_shape).permute(inverse), seen.view)
        elif lines.placed[i].how != "alias":
            break
        if view is None:
            break
        seen = Heads(node.output(), view)
        passed.add(i)
        if node.op == "Transpose":
            last, found = i, seen
            pieces.lines |= passed
    return found, last
