"""Models whose course only the run decides, with feeds; run natively, in the player, and by onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """`steps` are the kinds of the plan's own steps, kernels and copies aside; `host` the operators on the CPU."""

    text: str
    feeds: list[Feeds]
    steps: list[str]
    host: tuple[str, ...] = ()
    opset: int = 16

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {self.opset}]>\n{self.text}')


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def i64(n: int) -> Array:
    return np.array(n, np.int64)


X = np.arange(6, dtype=np.float32).reshape(2, 3)

CASES = {
    "a branch by data, that sees values around it": Case(
        """agraph (float[N, 3] x) => (float[N, 3] y, float z) {
          two = Constant <value = float {2.0}> ()  d = Add (x, two)
          s = ReduceSum <keepdims = 0> (x)  on = Less (s, two)
          y, z = If (on) <
            then_branch = t () => (float[N, 3] a, float h) { h = Constant <value = float {0.5}> () a = Mul (d, h) },
            else_branch = e () => (float[N, 3] b, float c) { b = Neg (x) c = Constant <value = float {7.0}> () }> }""",
        [{"x": f32(2, 3)}, {"x": f32(4, 3) + 2}, {"x": f32(1, 3)}],
        ["branch"],
    ),
    "branches of other sizes, and what follows": Case(
        """agraph (float[N, 3] x) => (float[M, 3] z) {
          zero = Constant <value = float {0.0}> ()  s = ReduceSum <keepdims = 0> (x)  on = Less (s, zero)
          y = If (on) <then_branch = t () => (float[A, 3] a) { a = Concat <axis = 0> (x, x) },
            else_branch = e () => (float[B, 3] b) { b = Abs (x) }>
          z = Neg (y) }""",
        [{"x": X}, {"x": -X - 1}, {"x": f32(5, 3)}],
        ["branch"],
    ),
    "a loop by a count that is fed": Case(
        """agraph (float[2, 3] x, int64 n) => (float[2, 3] y, float[T, 2, 3] all) {
          y, all = Loop (n, , x) <body = b (int64 i, bool c, float[2, 3] s) =>
            (bool c2, float[2, 3] s2, float[2, 3] out) {
              c2 = Identity (c) f = Cast <to = 1> (i) t = Add (s, f) s2 = Mul (t, x) out = Neg (t) }> }""",
        [{"x": f32(2, 3) * 0.3, "n": i64(n)} for n in (3, 5, 0, 70)],
        ["loop"],
    ),
    "a loop by a count that the device computes": Case(
        """agraph (float[2, 3] x) => (float[2, 3] y, float[T, 3] all) {
          m = ReduceMax <keepdims = 0> (x)  n = Cast <to = 7> (m)
          y, all = Loop (n, , x) <body = b (int64 i, bool c, float[2, 3] s) => (bool c2, float[2, 3] s2, float[3] out) {
              c2 = Identity (c) s2 = Add (s, x) out = ReduceSum <keepdims = 0> (s, ax) }>
        }""".replace("{\n          m", "{\n          ax = Constant <value = int64[1] {0}> ()\n          m"),
        [{"x": X}, {"x": X / 6}, {"x": X * 2}],
        ["loop"],
    ),
    "a loop until data says so": Case(
        """agraph (float[2, 3] x) => (float[2, 3] y, float[T, 2, 3] all) {
          go = Constant <value = bool {1}> ()  n = Constant <value = int64 {100}> ()
          y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[2, 3] s) =>
            (bool c2, float[2, 3] s2, float[2, 3] out) {
              big = Constant <value = float {20.0}> () m = ReduceMax <keepdims = 0> (s) c2 = Less (m, big)
              s2 = Add (s, x) out = Neg (s) }> }""",
        [{"x": X}, {"x": X * 0 + 1}, {"x": X + 30}, {"x": X * 0}],
        ["loop"],
    ),
    "a condition that is fed, and false at first": Case(
        """agraph (float[2, 3] x, bool go) => (float[2, 3] y, float[T, 2, 3] all) {
          y, all = Loop (, go, x) <body = b (int64 i, bool c, float[2, 3] s) =>
            (bool c2, float[2, 3] s2, float[2, 3] out) {
              three = Constant <value = int64 {3}> () c2 = Less (i, three) s2 = Add (s, x) out = Neg (s) }> }""",
        [{"x": X, "go": np.array(g)} for g in (True, False)],
        ["loop"],
    ),
    "a state that grows": Case(
        """agraph (float[1, 3] x, int64 n) => (float[K, 3] y) {
          y = Loop (n, , x) <body = b (int64 i, bool c, float[M, 3] s) => (bool c2, float[M2, 3] s2) {
              c2 = Identity (c) t = Add (s, x) s2 = Concat <axis = 0> (t, x) }> }""",
        [{"x": f32(1, 3), "n": i64(n)} for n in (0, 1, 3, 6, 2)],
        ["loop"],
    ),
    "sizes by the iteration's number": Case(
        """agraph (float[8, 3] x, int64 n) => (float[3] y) {
          zero = Constant <value = float[3] {0.0, 0.0, 0.0}> ()  one = Constant <value = int64[1] {1}> ()
          start = Constant <value = int64[1] {0}> ()
          y = Loop (n, , zero) <body = b (int64 i, bool c, float[3] s) => (bool c2, float[3] s2) {
              c2 = Identity (c) j = Unsqueeze (i, start) k = Add (j, one) p = Slice (x, start, k, start)
              m = ReduceMax <keepdims = 0> (p, start) s2 = Add (s, m) }> }""",
        [{"x": f32(8, 3), "n": i64(n)} for n in (4, 0, 8)],
        ["loop"],
        opset=18,
    ),
    "states that change places": Case(
        """agraph (float[2] a0, float[2] b0, int64 n) => (float[2] a, float[2] b) {
          a, b = Loop (n, , a0, b0) <body = g (int64 i, bool c, float[2] p, float[2] q) =>
            (bool c2, float[2] q2, float[2] p2) { c2 = Identity (c) q2 = Identity (q) p2 = Add (p, q) }> }""",
        [{"a0": f32(2), "b0": f32(2, seed=1), "n": i64(n)} for n in (0, 1, 2, 5)],
        ["loop"],
    ),
    "states that are stacked as well, one of them the condition": Case(
        """agraph (float[2] x, bool go, int64 n) => (bool last, float[2] y, float[T, 2] all, float[T, 2] same) {
          last, y, all, same = Loop (n, go, go, x) <body = b (int64 i, bool c, bool on, float[2] s) =>
            (bool more, bool more, float[2] t, float[2] t, float[2] t) {
              four = Constant <value = int64 {4}> () more = Less (i, four) t = Add (s, s) }> }""",
        [{"x": f32(2), "go": np.array(True), "n": i64(n)} for n in (3, 9, 0)],
        ["loop"],
    ),
    "a scan of unknown length, backward": Case(
        """agraph (float[2] s, float[T, 2] a) => (float[2] last, float[T, 2] y) {
          last, y = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
            body = g (float[2] s0, float[2] p) => (float[2] s1, float[2] u) { s1 = Add (s0, p) u = Mul (s1, p) }>
            (s, a) }""",
        [{"s": f32(2), "a": f32(n, 2, seed=1)} for n in (1, 4, 80)],
        ["loop"],
    ),
    "a scan along other axes, forward and backward": Case(
        """agraph (float[2] s, float[2, T] a, float[T, 2] b) => (float[2] last, float[2, T] y, float[T, 2] z) {
          last, y, z = Scan <num_scan_inputs = 2, scan_input_axes = [-1, 0], scan_input_directions = [0, 1],
            scan_output_axes = [1, 0], scan_output_directions = [0, 1],
            body = g (float[2] s0, float[2] p, float[2] q) => (float[2] s1, float[2] u, float[2] v) {
              t = Add (s0, p) s1 = Mul (t, q) u = Identity (s1) v = Neg (t) }> (s, a, b) }""",
        [{"s": f32(2), "a": f32(2, n, seed=1), "b": f32(n, 2, seed=2)} for n in (3, 1, 7)],
        ["loop"],
    ),
    "a branch within a loop within a branch": Case(
        """agraph (float[3] x, int64 n) => (float[3] y) {
          zero = Constant <value = float {0.0}> ()  s = ReduceSum <keepdims = 0> (x)  on = Less (zero, s)
          y = If (on) <
            then_branch = t () => (float[3] a) {
              a = Loop (n, , x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w) {
                c2 = Identity (c) m = ReduceMax <keepdims = 0> (v) four = Constant <value = float {4.0}> ()
                small = Less (m, four)
                w = If (small) <then_branch = t2 () => (float[3] p) { p = Add (v, x) },
                  else_branch = e2 () => (float[3] q) { q = Mul (v, s) r = Neg (q) }> }> },
            else_branch = e () => (float[3] b) { b = Neg (x) }> }""",
        [{"x": np.array(v, np.float32), "n": i64(n)} for v in ([1, 2, -1], [-3, 1, 1]) for n in (4, 0)],
        ["branch"],
    ),
    "a node for the CPU within a loop": Case(
        """agraph (float[4] x, int64 n) => (float[4] y, float[T, 4] all) {
          y, all = Loop (n, , x) <body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] s2, float[4] o) {
              c2 = Identity (c) d = Cast <to = 11> (s) e = Exp (d) f = Cast <to = 1> (e)
              o = Neg (f) half = Constant <value = float {0.1}> () s2 = Mul (f, half) }> }""",
        [{"x": f32(4), "n": i64(n)} for n in (3, 0, 1)],
        ["loop"],
        host=("Cast", "Exp", "Cast"),
    ),
    "sizes that an iteration computes": Case(
        """agraph (float[6] x, int64 n) => (float[6] y) {
          y = Loop (n, , x) <body = b (int64 i, bool c, float[6] s) => (bool c2, float[6] s2) {
              c2 = Identity (c) zero = Constant <value = float {0.0}> () k = Greater (s, zero)
              p = Compress (s, k) t = ReduceSum <keepdims = 0> (p) s2 = Sub (s, t) }> }""",
        [{"x": f32(6), "n": i64(n)} for n in (3, 1, 0)],
        ["loop"],
    ),
    "truth values, stacked": Case(
        """agraph (float[8] x, int64 n) => (bool[T, 8] all) {
          y, all = Loop (n, , x) <body = b (int64 i, bool c, float[8] s) => (bool c2, float[8] s2, bool[8] o) {
              c2 = Identity (c) zero = Constant <value = float {0.0}> () o = Greater (s, zero) s2 = Sub (s, x) }> }""",
        [{"x": f32(8), "n": i64(n)} for n in (3, 0)],
        ["loop"],
    ),
}
