"""Writes expected.toml from what happens: `python -m tests.conformance.update`. Read the difference before a commit."""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict

from tests.conformance import cases as C
from tests.conformance.run import run_plan
from webrt.cli.progress import Bars
from webrt.errors import WebrtError


def main() -> None:
    warnings.simplefilter("ignore")
    groups: dict[str, dict[str, list[str]]] = {k: defaultdict(list) for k in C.KEYS}
    known = C.expected()
    for key in ("random", "rounded"):
        for name, reason in known[key].items():
            groups[key][reason].append(name)
    all_cases = C.cases()
    bars = Bars()
    for i, (name, case) in enumerate(sorted(all_cases.items())):
        bars("node cases", i + 1, len(all_cases))
        try:
            plan = C.compile_case(case)
            result = run_plan(plan, case)
            kind = result.kind
            if kind == "cpu":
                groups["cpu"][C.why_cpu(plan)].append(name)
            elif kind == "metadata":
                groups["metadata"]["aliases and sizes only"].append(name)
            C.compare(case, result.outputs)
        except (WebrtError, AssertionError) as e:
            reason = known["fails"].get(name, f"{type(e).__name__}: {str(e).strip().splitlines()[0][:100]}")
            groups["fails"][reason].append(name)
            print(f"\n{name}: {e}", file=sys.stderr)
    with C.EXPECTED.open("w", encoding="utf8") as f:
        f.write("# What does not run wholly on WebGPU, by reason. Strict both ways: test_node_cases.py.\n")
        f.write("# Written by `python -m tests.conformance.update`.\n")
        for key, reasons in groups.items():
            f.write(f"\n[{key}]\n")
            for reason, names in sorted(reasons.items()):
                f.write(f"{json.dumps(reason)} = [\n" + "".join(f'  "{n}",\n' for n in sorted(names)) + "]\n")


if __name__ == "__main__":
    main()
