"""The CPU provider: every ONNX operator on numpy.

Each operator is ours (`registry.py` and the family files), or one of onnx's reference operators, or the function
body of its schema. The same code folds constants, runs the host steps of a plan, and runs whole models.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import onnx
from onnx import FunctionProto, NodeProto

from webrt.host.graph import GraphRunner, captured_names, run_model
from webrt.host.node import PreparedNode
from webrt.host.values import HostValue

__all__ = ["CpuProvider", "GraphRunner", "HostValue", "PreparedNode", "captured_names", "evaluate", "run_model"]


def evaluate(
    node: NodeProto,
    opsets: Mapping[str, int],
    inputs: Sequence[HostValue],
    outer: Mapping[str, HostValue] | None = None,
    *,
    functions: Sequence[FunctionProto] = (),
) -> list[HostValue]:
    """Runs one node once.

    `opsets` maps a domain ("" is ONNX's own) to its version in the model; `inputs` has one value per input of the node,
    None for an absent one; `outer` the values that subgraphs of If, Loop and Scan capture; `functions` the model's.
    Returns one value per output of the node, None for an absent one. Raises a WebrtError that names the node.
    """
    return PreparedNode(node, opsets, functions).run(inputs, outer)


class CpuProvider:
    """Prepares nodes for a session: a node is parsed and looked up once, then only run."""

    name = "CPUExecutionProvider"

    def __init__(self) -> None:
        self._prepared: dict[tuple[bytes, tuple[tuple[str, int], ...]], PreparedNode] = {}
        self._lock = threading.Lock()

    def prepare(
        self, node_bytes: bytes, opsets: Mapping[str, int], functions: Sequence[FunctionProto] = ()
    ) -> PreparedNode:
        """A handle for a serialized NodeProto; the same bytes and opsets give the same handle.

        `handle.run(inputs, outer)` returns one value per output; `handle.captures` names what `outer` has to hold.
        """
        key = (node_bytes, tuple(sorted(opsets.items())))
        with self._lock:
            if key not in self._prepared or functions:
                node = onnx.NodeProto()
                node.ParseFromString(node_bytes)
                self._prepared[key] = PreparedNode(node, opsets, functions)
            return self._prepared[key]
