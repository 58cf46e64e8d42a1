"""A basic pass that makes a product of matrices and the sum after it one operator."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses
from webrt.ir import Graph, Node, Value


def add_to_products(graph: Graph) -> bool:
    """MatMul of two matrices, then Add of a number for each column → Gemm."""
    uses, products = Uses(graph), dict[Node, Node]()
    for node in graph.nodes:
        product, bias = _sum(uses, node)
        if product is None or bias is None:
            continue
        product.op_type, product.outputs = "Gemm", [node.output()]
        uses.replace_input(product, 2, bias)
        node.output().producer = products[node] = product
        product.sources = (*product.sources, *node.sources)
    moved = set(products.values())  # to where the sum was: the bias may be made after the product
    graph.nodes[:] = [products.get(n, n) for n in graph.nodes if n not in moved]
    return bool(products)


def _sum(uses: Uses, node: Node) -> tuple[Node | None, Value | None]:
    """The MatMul that alone gives the node one operand, and the other."""
    if node.op != "Add":
        return None, None
    for x, bias in ((node.input(0), node.input(1)), (node.input(1), node.input(0))):
        product = x.producer
        if product is None or product.op != "MatMul" or x is bias or not uses.alone(x, node):
            continue
        if _is_matrices(product) and bias.dtype == x.dtype and _is_row(bias, x):
            return product, bias
    return None, None


def _is_matrices(product: Node) -> bool:
    a, b = product.input(0), product.input(1)
    floats = a.dtype in (T.F32, T.F16) and a.dtype == b.dtype
    return floats and a.shape is not None and b.shape is not None and a.rank == b.rank == 2


def _is_row(bias: Value, x: Value) -> bool:
    """Whether there is one number for each column, now and at any run."""
    if bias.shape is None or x.shape is None or not 1 <= bias.rank <= 2:
        return False
    return bias.shape[-1] == x.shape[-1] and (bias.rank == 1 or bias.shape[0] == 1)
