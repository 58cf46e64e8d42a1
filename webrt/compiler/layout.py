"""The layout pass: images around convolutions are kept channels-last, so that four channels are one vector.

Before: every image is [N, C, …]. After: convolutions, pools, resizes, concatenations and what is elementwise among them
work on [N, …, C]; transposes stand at the edges, or are gone where the model itself transposes. Weights are packed at
compile time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.images import feeds_convolution, only_for_convolutions, products, suits, to_be_padded
from webrt.compiler.lines import Lines
from webrt.compiler.lower import reads
from webrt.compiler.partition import Placed
from webrt.dims import Dim
from webrt.errors import NotConstant, UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value, constant
from webrt.lowering import Builder, Elementwise, static_bytes
from webrt.ops.channels_last import CHANNELS_LAST
from webrt.ops.elementwise import launch
from webrt.ops.reduce import reduced_axes
from webrt.ops.view import View, channels_to_first, channels_to_last, move

REASON = "keeps images channels-last"
LEAST_PRODUCTS = 32
"""Products per sum from which on a convolution is worth transposing its input."""


def channels_last(lines: Lines) -> None:
    """Images around convolutions → channels-last."""
    if any(p.node.op == "Conv" and p.how == "kernel" for p in lines.placed):
        layout = _Layout(lines)
        layout.run()
        lines.rebuild(layout.out)


class _Layout:
    """`twins`: the channels-last form of values; `native`: values that were computed in that form; `pending`: those of
    them that nothing has brought into ONNX's form yet."""

    def __init__(self, lines: Lines) -> None:
        self.lines, self.out = lines, list[Placed]()
        self.twins, self.padded = dict[Value, Value](), dict[Value, Value]()
        self.native, self.pending = set[Value](), set[Value]()
        self.made = list[Value]()

    def run(self) -> None:
        """Goes through the lines in order."""
        for index, placed in enumerate(self.lines.placed):
            new = self._attempt(index, placed)
            if new is not None:
                self.out.append(new)
                self._written(placed.node.output(), new.node.output())
                continue
            for v in _stored_reads(placed):
                self._need(v)
            self.out.append(placed)
        for v in [v for v in self.pending if v in self.lines.kept]:
            self._need(v)

    def _attempt(self, index: int, placed: Placed) -> Placed | None:
        """The line on channels-last images, or None; then nothing is left of the attempt."""
        length, self.made = len(self.out), []
        try:
            new = self._convert(index, placed)
        except (UnsupportedOp, UnsupportedType, NotConstant):
            new = None
        if new is None:
            del self.out[length:]
            for v in self.made:
                self.twins.pop(v, None)
                self.padded.pop(v, None)
        return new

    def _convert(self, index: int, placed: Placed) -> Placed | None:
        node = placed.node
        if placed.how not in ("kernel", "copy", "alias") or len(node.outputs) != 1 or node.outputs[0] is None:
            return None
        size = static_bytes(node.output())
        if size is not None and size > self.lines.target.limit("maxStorageBufferBindingSize"):
            return None  # no transposition could give it back to what reads it as ONNX has it
        if node.op == "Transpose":
            return self._transpose(placed)
        if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            return self._reshape(placed)
        step = self.lines.formula(index)
        if step is not None:
            return self._elementwise(placed, step)
        if (node.domain, node.op_type) not in CHANNELS_LAST or not self._takes(node):
            return None
        return self._operator(placed)

    def _takes(self, node: Node) -> bool:
        """Whether the operator gains by channels-last images."""
        x, out = node.input(0), node.output()
        if x.dtype != T.F32 or x.rank < 3:
            return False
        if node.op == "Conv":
            gains = x in self.native or products(node) >= LEAST_PRODUCTS or feeds_convolution(self.lines, out)
            return suits(node) and gains
        if node.op in ("ReduceMean", "ReduceMax"):
            return x in self.native and set(reduced_axes(node)) == set(range(2, x.rank))
        return out.rank == x.rank and any(v in self.native for v in node.given())

    def _operator(self, placed: Placed) -> Placed:
        node = placed.node
        images = 1 if node.op != "Concat" else len(node.inputs)
        inputs = [self._twin(v) if k < images and v is not None else v for k, v in enumerate(node.inputs)]
        if node.op == "Conv" and to_be_padded(node):
            inputs[0] = self._with_fours(node.input(0))
        small = node.op in ("ReduceMean", "ReduceMax")
        out = node.output() if small else self._new(node.output())
        new = replace(node, inputs=inputs, outputs=[out], channels_last=True)
        builder = self._builder(node)
        if small:
            spatial = onnx.helper.make_attribute("axes", list(range(1, node.input(0).rank - 1)))
            new = replace(new, inputs=inputs[:1], attrs={**node.attrs, "axes": spatial}, opset=min(node.opset, 13))
        CHANNELS_LAST[node.domain, node.op_type](new, builder)
        return _placed(placed, new, builder)

    def _elementwise(self, placed: Placed, step: Elementwise) -> Placed | None:
        rank = step.out.rank
        if rank < 3 or not any(v in self.native and v.rank == rank for v in step.operands.values()):
            return None
        operands: dict[str, Value] = {}
        for name, v in step.operands.items():
            seen = self._operand(v, rank)
            if seen is None:
                return None
            operands[name] = seen
        builder, out = self._builder(placed.node), self._new(step.out)
        launch(builder, out, operands, step.formula, placed.node.op_type.lower())
        swapped = {v: operands[k] for k, v in step.operands.items()}
        inputs = [None if v is None else swapped.get(v, v) for v in placed.node.inputs]
        new = replace(placed.node, inputs=inputs, outputs=[out], channels_last=True)
        return _placed(placed, new, builder)

    def _operand(self, v: Value, rank: int) -> Value | None:
        """What broadcasts to channels-last images as v does to those of ONNX; None where there is no simple form."""
        if v.elements == 1:
            return v
        if v.const is not None and v.dtype is not None and v.rank <= rank:
            shape = (1,) * (rank - v.rank) + v.const.shape
            return constant(f"{v.name}/channels_last", np.moveaxis(v.const.reshape(shape), 1, -1).copy(), v.dtype)
        return self._twin(v) if v.rank == rank and v.contents is None else None

    def _transpose(self, placed: Placed) -> Placed | None:
        """Of channels-last images it is another transpose, or none; one that makes images channels-first is not needed
        where they are read as channels-last only."""
        node, x, out = placed.node, placed.node.input(0), placed.node.output()
        perm = [int(a) for a in node.attr("perm") or reversed(range(x.rank))]
        builder = self._builder(node)
        if x in self.native:
            order = channels_to_last(range(x.rank))
            seen = [order.index(a) for a in perm]
            twin = self.twins[x]
            move(builder, out, twin, View.of(twin.known_shape).permute(seen), "transpose")
            attrs = {"perm": onnx.helper.make_attribute("perm", seen)}
            return _placed(placed, replace(node, inputs=[twin], attrs=attrs), builder)
        if x.rank < 3 or not only_for_convolutions(self.lines, out):
            return None
        moved = [a for a in channels_to_last(perm) if x.known_shape[a] != 1]
        if moved != sorted(moved):
            return None
        twin = self._new(out)
        builder.alias(twin, x)
        return _placed(placed, replace(node, op_type="Reshape", outputs=[twin], attrs={}), builder)

    def _reshape(self, placed: Placed) -> Placed | None:
        """Joining or splitting the spatial axes does not touch the channels."""
        x, out = placed.node.input(0), placed.node.output()
        if x not in self.native or out.shape is None or out.rank < 3 or out.shape[:2] != x.known_shape[:2]:
            return None
        builder, twin = self._builder(placed.node), self._new(out)
        builder.alias(twin, self.twins[x])
        node = replace(placed.node, op_type="Reshape", inputs=[self.twins[x]], outputs=[twin], attrs={})
        return _placed(placed, node, builder)

    def _written(self, v: Value, made: Value) -> None:
        """v was computed; where it is one pixel, both forms are the same bytes, and ONNX's is the one to go on with."""
        if made is v:
            return
        self.twins[v] = made
        self.pending.add(v)
        if all(d == 1 for d in v.known_shape[2:]):
            self._need(v)
        else:
            self.native.add(v)

    def _need(self, v: Value) -> None:
        """Something reads v as ONNX has it."""
        if v in self.pending:
            self.pending.discard(v)
            self._move(self.twins[v], v, channels_to_first(range(v.rank)))

    def _twin(self, v: Value) -> Value:
        """v with its channels last."""
        if v not in self.twins:
            self.twins[v] = self._new(v)
            self.made.append(v)
            self._move(v, self.twins[v], channels_to_last(range(v.rank)))
        return self.twins[v]

    def _with_fours(self, v: Value) -> Value:
        """v with its channels last, and zeros after them up to a multiple of 4."""
        if v in self.native:
            return self.twins[v]
        if v not in self.padded:
            images, channels, *spatial = v.known_shape
            out = Value(f"{v.name}/fours_last", v.dtype, (images, *spatial, D.mul(D.ceildiv(channels, 4), 4)))
            params: dict[str, Dim | float] = {"channels": channels, "fours": D.ceildiv(channels, 4)}
            params["plane"] = D.prod(spatial)
            builder = Builder(self.lines.target, f"layout.{v.name}")
            builder.map(
                out, _PADDED, reads={"x": v}, params=params, fns=[_CHANNEL], vec={"out": 4}, name="channels_last"
            )
            node = Node("ChannelsLast", "webrt", v.name, [v], [out], 1)
            self.out.append(Placed(node, "kernel", REASON, builder.steps))
            self.padded[v] = out
            self.made.append(v)
        return self.padded[v]

    def _move(self, source: Value, out: Value, perm: tuple[int, ...]) -> None:
        builder = Builder(self.lines.target, f"layout.{out.name}")
        move(builder, out, source, View.of(source.known_shape).permute(perm), "transpose")
        attrs = {"perm": onnx.helper.make_attribute("perm", list(perm))}
        node = Node("Transpose", "", source.name, [source], [out], 13, attrs)
        self.out.append(Placed(node, _how(builder), REASON, builder.steps))

    def _new(self, v: Value) -> Value:
        return Value(f"{v.name}/channels_last", v.dtype, channels_to_last(v.known_shape), roots=v.roots)

    def _builder(self, node: Node) -> Builder:
        return Builder(self.lines.target, f"last.{node.output().name}")


_PADDED = """let pixel = i / p.fours;
let c = (i - pixel * p.fours) * 4u;
let image = pixel / p.plane;
let at = (image * p.channels + c) * p.plane + (pixel - image * p.plane);
let more = p.channels - c;
return vec4<f32>(load_x(at), channel(at, 1u, more), channel(at, 2u, more), channel(at, 3u, more));"""
_CHANNEL = """fn channel(at: u32, k: u32, more: u32) -> f32 {
  return select(0.0, load_x(at + min(k, more - 1u) * p.plane), k < more);
}"""


def _stored_reads(placed: Placed) -> list[Value]:
    """The values that the line reads at a run."""
    if placed.how == "host":
        return [*placed.node.given(), *placed.node.outer]
    return [v for step in placed.steps for v in reads(step)]


def _how(builder: Builder) -> str:
    kinds = {type(s).__name__ for s in builder.steps}
    return "kernel" if "Launch" in kinds else "copy" if "CopyBytes" in kinds else "alias"


def _placed(old: Placed, node: Node, builder: Builder) -> Placed:
    checks = list(dict.fromkeys([*old.checks, *builder.checks]))
    return Placed(node, _how(builder), old.reason, builder.steps, checks, builder.elementwise)
