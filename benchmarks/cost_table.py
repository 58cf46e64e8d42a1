"""Measures what the variants of products and convolutions cost on this adapter, for the table that orders them.

    python -m benchmarks.cost_table                        prints the rows of the adapter that webrt would take
    python -m benchmarks.cost_table --write                puts them into webrt/costs.json, beside other adapters' rows
    python -m benchmarks.cost_table --adapter swiftshader  the first adapter whose name contains this

Plans for every adapter carry all variants; they are measured as `webrt tune` does it (by CPU time on a software
adapter), one case after another. webrt/costs.py reads the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.kernels import Case, conv, gemm, model_of
from webrt import costs
from webrt.buckets import bucket_of
from webrt.compiler.compile import compile_model
from webrt.costs import CostTable, adapter_class, label
from webrt.files import atomic_file
from webrt.runtime import tuning
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

BUDGET = 60.0
"""Seconds for a case."""


@dataclass(frozen=True)
class Sized:
    """A case, the family of its kernels and the sizes that they are chosen by."""

    case: Case
    family: str
    sizes: tuple[int, ...]


def _product(m: int, k: int, n: int, constants: int | None = None) -> Sized:
    return Sized(gemm(m, k, n, constants), "matmul_tile", (1, m, n, k))


def _conv(channels: int, outputs: int, size: int, kernel: int) -> Sized:
    case = conv(channels, outputs, size, kernel, 1)
    return Sized(case, "conv_last", (size * size, outputs, channels, kernel * kernel))


def _depthwise(channels: int, size: int, kernel: int) -> Sized:
    case = conv(channels, channels, size, kernel, 1, group=channels)
    return Sized(case, "depthwise_last", (size * size, channels, kernel * kernel))


CASES: tuple[Sized, ...] = (
    *(_product(1, k, n, 1) for k, n in ((256, 256), (256, 1024), (1024, 1024))),
    *(_product(m, k, n, 1) for m in (16, 128, 512) for k, n in ((64, 256), (256, 256), (512, 512))),
    *(_conv(i, o, s, 1) for i, o, s in ((16, 96, 112), (96, 24, 56), (32, 192, 28), (96, 576, 14), (160, 960, 7))),
    *(_conv(c, c, s, 3) for c, s in ((16, 112), (32, 56), (64, 56), (64, 28), (128, 28), (128, 14), (256, 14))),
    *(_depthwise(c, s, 3) for c, s in ((32, 112), (96, 56), (192, 28), (576, 14), (960, 7))),
    _depthwise(240, 28, 5),
)


def measured(device: NativeDevice, cases: Sequence[Sized]) -> Iterator[CostTable]:
    """A row for each case that has several variants here."""
    for case in cases:
        model, fed = model_of(case.case)
        plan = compile_model(model)
        own = tuning.Tuning(tuning.empty(device), measure=True, budget=BUDGET)
        with Session(plan, device, tuning=own) as session:
            session.run(None, {v.name: Tensor.from_numpy(a, device) for v, a in zip(plan.inputs, fed)}, "device")
        names = {k.hash: label(k) for k in plan.kernels}
        for (hashes, _), entry in own.table.entries.items():
            us = {names[h]: t for h, t in zip(hashes, entry.us)}
            yield CostTable({(adapter_class(device.target), case.family, bucket_of(case.sizes)): us})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--adapter", help="a part of the adapter's name")
    options.add_argument("--only", help="this family alone", choices=sorted({c.family for c in CASES}))
    options.add_argument("--write", action="store_true", help="change webrt/costs.json")
    args = options.parse_args()
    device = NativeDevice(adapter=args.adapter)
    table = CostTable()
    cases = [c for c in CASES if args.only in (None, c.family)]
    for row in measured(device, cases):
        table = table.merged(row)
        print(*row.dumps().splitlines()[3:-2], file=sys.stderr)
    device.close()
    if args.write:
        with atomic_file(costs.FILE) as file:
            file.write(costs.shipped().merged(table).dumps().encode())
    else:
        print(table.dumps(), end="")


if __name__ == "__main__":
    main()
