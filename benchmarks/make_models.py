"""Networks of common architectures with seeded random weights, made without torch: for `make bench`, and by hand:

python -m benchmarks.make_models FOLDER

made_cnn: inverted residual blocks as in MobileNetV2 (depthwise and 1×1 convolutions, ReLU6). made_encoder: two
transformer layers behind a strided Conv, as in ViT. made_decoder: two layers of a decoder with a cache of keys and
values, one new token. Weights are scaled so that activations keep their size.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import Array, Model
from webrt.cli.assets import cache_dir

Shape = list[int | str]


class Net:
    """Builds a graph; names are numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal values, by default of variance 1 / (inputs of an output)."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        spread = 1 / np.sqrt(fan_in) if scale is None else scale
        return self.constant((self.random.standard_normal(shape) * spread).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], f"{kind.lower()}_{len(self.nodes)}", **attributes))
        return out

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inner, outer)), self.weight(outer, scale=0.1))

    def norm(self, x: str, size: int) -> str:
        scale = self.constant(np.ones(size, np.float32))
        return self.op("LayerNormalization", x, scale, self.weight(size, scale=0.1), axis=-1)

    def heads(self, x: str, count: int, size: int) -> str:
        """[batch, length, count·size] → [batch, count, length, size]."""
        split = self.op("Reshape", x, self.constant(np.array([0, 0, count, size], np.int64)))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, size: int) -> str:
        """[batch, count, length, size] → [batch, length, count·size]."""
        scaled = self.op("Mul", q, self.constant(np.float32(1 / np.sqrt(size))))
        weights = self.op("Softmax", self.op("MatMul", scaled, self.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
        merged = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.op("Reshape", merged, self.constant(np.array([0, 0, -1], np.int64)))

    def feed_forward(self, x: str, width: int) -> str:
        inner = self.linear(self.norm(x, width), width, 4 * width)
        half = self.op("Mul", inner, self.constant(np.float32(0.5)))
        erf = self.op("Erf", self.op("Mul", inner, self.constant(np.float32(np.sqrt(0.5)))))
        gelu = self.op("Mul", half, self.op("Add", erf, self.constant(np.float32(1))))
        return self.op("Add", x, self.linear(gelu, 4 * width, width))

    def model(self, inputs: dict[str, Shape], outputs: dict[str, Shape]) -> onnx.ModelProto:
        infos = [
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in group.items()]
            for group in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "made", infos[0], infos[1], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def rename(self, old: str, new: str) -> None:
        """Calls the value that was made last, or any, by the name of an output."""
        for node in self.nodes:
            node.output[:] = [new if n == old else n for n in node.output]
            node.input[:] = [new if n == old else n for n in node.input]


def made_cnn(height: int | str = 160, width: int | str = 160) -> onnx.ModelProto:
    net = Net(1)
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))

    def conv(x: str, i: int, o: int, k: int, stride: int = 1, group: int = 1, cut: bool = True) -> str:
        weights, bias = net.weight(o, i // group, k, k), net.weight(o, scale=0.1)
        pads, strides = [k // 2] * 4, [stride, stride]
        y = net.op("Conv", x, weights, bias, kernel_shape=[k, k], pads=pads, strides=strides, group=group)
        return net.op("Clip", y, low, high) if cut else y

    x, channels = conv("pixels", 3, 16, 3, stride=2), 16
    for out, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1)):
        wide = 4 * channels
        y = conv(conv(x, channels, wide, 1), wide, wide, 3, stride=stride, group=wide)
        y = conv(y, wide, out, 1, cut=False)
        x, channels = (net.op("Add", x, y) if stride == 1 and out == channels else y), out
    pooled = net.op("Flatten", net.op("GlobalAveragePool", conv(x, channels, 320, 1)))
    net.rename(net.linear(pooled, 320, 100), "scores")
    return net.model({"pixels": ["batch", 3, height, width]}, {"scores": ["batch", 100]})


def made_encoder(width: int = 192, heads: int = 6) -> onnx.ModelProto:
    net, size = Net(2), width // heads
    patches = net.op("Conv", "pixels", net.weight(width, 3, 16, 16), kernel_shape=[16, 16], strides=[16, 16])
    flat = net.op("Reshape", patches, net.constant(np.array([0, width, -1], np.int64)))
    x = net.op("Add", net.op("Transpose", flat, perm=[0, 2, 1]), net.weight(1, 196, width, scale=0.1))
    for _ in range(2):
        y = net.norm(x, width)
        q, k, v = (net.heads(net.linear(y, width, width), heads, size) for _ in range(3))
        x = net.op("Add", x, net.linear(net.attend(q, k, v, size), width, width))
        x = net.feed_forward(x, width)
    net.rename(net.norm(x, width), "features")
    return net.model({"pixels": ["batch", 3, 224, 224]}, {"features": ["batch", 196, width]})


def made_decoder(width: int = 256, heads: int = 4) -> onnx.ModelProto:
    net, size = Net(3), width // heads
    cache: Shape = ["batch", heads, "past", size]
    inputs: dict[str, Shape] = {"hidden": ["batch", 1, width]}
    outputs: dict[str, Shape] = {}
    x = "hidden"
    for layer in range(2):
        y = net.norm(x, width)
        q, k, v = (net.heads(net.linear(y, width, width), heads, size) for _ in range(3))
        present = []
        for kind, made in (("key", k), ("value", v)):
            inputs[f"past_{kind}_{layer}"] = cache
            joined, name = net.op("Concat", f"past_{kind}_{layer}", made, axis=2), f"present_{kind}_{layer}"
            net.rename(joined, name)
            outputs[name] = ["batch", heads, "total", size]
            present.append(name)
        x = net.op("Add", x, net.linear(net.attend(q, *present, size), width, width))
        x = net.feed_forward(x, width)
    net.rename(net.op("MatMul", net.norm(x, width), net.weight(width, 8000)), "logits")
    return net.model(inputs, {"logits": ["batch", 1, 8000], **outputs})


def _cache(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    names = [f"past_{kind}_{layer}" for layer in range(2) for kind in ("key", "value")]
    return {"hidden": (1, 1, 256), **dict.fromkeys(names, shape)}


MADE: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, tuple[int, ...]]]] = {
    "made_cnn": (made_cnn, {"pixels": (1, 3, 160, 160)}),
    "made_encoder": (made_encoder, {"pixels": (1, 3, 224, 224)}),
    "made_decoder": (made_decoder, _cache((1, 4, 127, 64))),
}


def write(folder: Path) -> Iterator[Model]:
    """Writes the networks into a folder, and gives them with inputs."""
    for name, (make, shapes) in MADE.items():
        path = folder / f"{name}.onnx"
        model = make()
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())
        random = np.random.default_rng(0)
        feeds: dict[str, Array] = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        yield Model(name, path, feeds)


def made_models() -> Iterator[Model]:
    """The networks, in webrt's cache."""
    yield from write(cache_dir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for model in write(args.folder):
        np.savez(model.path.with_suffix(".npz"), **{f"in:{n}": a for n, a in model.feeds.items()})
        print(model.path)


if __name__ == "__main__":
    main()
