"""What a run costs in Chromium beside the same plan natively on SwiftShader, in CPU time, as JSON by model.

    python -m benchmarks.page_cost --models DIR              every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks.page_cost --models DIR --only NAME --repeat 8

`page` is the CPU time of Chromium's GPU process for a run in player.js, in seconds (it counts in hundredths), `native`
that of this process, `unguarded` that of a Chromium whose compiler leaves out what keeps kernels within their buffers
and textures: medians of runs in turn. `ratio` is page / native. The adapter has to be found natively, too: on Linux
VK_DRIVER_FILES names the driver file beside Chromium's program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.models import Model, add_arguments, chosen, seconds_of
from benchmarks.pages import HERE, InPage, plan_of, put_work
from benchmarks.renderers import cpu_by_process
from webrt.cli import chromium
from webrt.planfile import save
from webrt.resources import web_dir
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

GPU = b"--type=gpu-process"
UNGUARDED = ("--enable-dawn-features=disable_robustness",)


def measure(model: Model, repeat: int) -> dict[str, Any]:
    """One model's row."""
    plan = plan_of(model)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()), "site")
        shutil.copytree(web_dir(), folder)
        for name in ("page.html", "page.js"):
            shutil.copyfile(HERE / name, folder / name)
        put_work(folder, model)
        save(plan, folder / "work" / "model.webrt")
        base = stack.enter_context(chromium.serve(folder, isolated=True))
        session = stack.enter_context(Session(plan, NativeDevice(adapter="SwiftShader")))
        runs = {
            "native": lambda: seconds_of(lambda: session.run(None, dict(model.feeds))),
            "page": stack.enter_context(_page(base, model, ())),
            "unguarded": stack.enter_context(_page(base, model, UNGUARDED)),
        }
        runs["native"]()
        times = [{name: run() for name, run in runs.items()} for _ in range(repeat)]
    medians = {name: round(statistics.median(t[name] for t in times), 3) for name in runs}
    return {"model": model.name, **medians, "ratio": round(medians["page"] / medians["native"], 2)}


@contextmanager
def _page(base: str, model: Model, switches: tuple[str, ...]) -> Iterator[Callable[[], float]]:
    """Runs the model once in a Chromium of its own: seconds of its GPU process."""
    others = set(cpu_by_process(GPU))
    with chromium.launch(args=switches) as browser:
        page = InPage(browser.new_page(), base, "player", model)
        (process,) = set(cpu_by_process(GPU)) - others
        yield lambda: seconds_of(page.run, lambda: cpu_by_process(GPU)[process])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--repeat", type=int, default=8, metavar="N", help="runs of each (default: 8)")
    args = parser.parse_args()
    for model in chosen(args):
        print(json.dumps(measure(model, args.repeat)), flush=True)


if __name__ == "__main__":
    main()
