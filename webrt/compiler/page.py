"""The compile half inside a page's sandbox: web/compile-worker.js calls it under Pyodide, with everything as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from webrt import planfile
from webrt.compiler.compile import compile_model
from webrt.compiler.options import CompileOptions
from webrt.compiler.worker import problem
from webrt.target import Target

PLAIN = ("level", "strict", "free_dims", "disabled")


def compile_bytes(
    model: bytes, request: str, external: Mapping[str, bytes], report: Callable[[str, int, int], None]
) -> tuple[bytes, bytes, str]:
    """(the `.webrt` file, the optimised `.onnx`, JSON). Where it fails the files are empty and the JSON is worker.py's
    message of an error; else it is {"placement": […]}.

    `request` is JSON: {"level", "providers", "target", "free_dims", "strict", "disabled", "optimized", "known"}, all
    optional; "known" has inputs' elements by name, as JSON has them.
    """
    try:
        asked = json.loads(request)
        models: list[bytes] = []
        options = CompileOptions(
            **{name: asked[name] for name in PLAIN if name in asked},
            providers=tuple(asked.get("providers", ("webgpu", "cpu"))),
            target=Target.from_json(asked.get("target", {})), external_data=external,
            optimized=models.append if asked.get("optimized") else None,
            known_inputs=asked.get("known", {}),
            progress=report,
        )  # fmt: skip
        made = compile_model(model, options)
        placement = json.dumps({"placement": [asdict(p) for p in made.placement]})
        return planfile.dump(made), models[-1] if models else b"", placement
    except Exception as e:
        return b"", b"", json.dumps(problem(e))
