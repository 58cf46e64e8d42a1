"""Reads the text in a picture of a line of text, on this machine and in a browser page, and compares.

    python examples/ocr_demo.py
    python examples/ocr_demo.py --text "webrt runs ONNX" --no-browser

The model is PP-OCRv4's recogniser (Apache-2.0, fetched once). Here it runs through wgpu-py; in headless Chromium it is
compiled under Pyodide and run by web/player.js. Where there is no WebGPU adapter the CPU provider runs it instead.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from webrt import InferenceSession, WebrtError
from webrt.cli import assets, chromium, site
from webrt.cli.progress import Bars
from webrt.cli.run import summary
from webrt.resources import web_dir
from webrt.runtime.devices import adapter_name

if TYPE_CHECKING:
    from playwright.sync_api import Page

sys.path.insert(0, str(web_dir()))
import ocr

PICTURE = "hello.png"
PICTURE_TEXT = "Hello WebGPU 2026"
RUNS = 5
BROWSER_SECONDS = 240
STAGES = """[...document.querySelectorAll("#stages li")].map((stage) => [
  stage.querySelector("label").textContent, Math.max(0, Math.round(stage.querySelector("progress").position * 100))])"""


@dataclass(frozen=True)
class Reading:
    """What one side read, and how."""

    where: str
    text: str
    adapter: str
    placement: str
    times: str


def read_natively(model: Path, picture: Path, bars: Bars) -> Reading:
    """Reads the picture through `webrt.InferenceSession`."""
    bars("Compiling, natively", 0, 1)
    start = time.perf_counter()
    session = InferenceSession(model)
    loaded = time.perf_counter() - start
    bars("Compiling, natively", 1, 1)
    feeds = {session.get_inputs()[0].name: ocr.network_input(pixels(picture))}
    took = []
    for i in range(RUNS):
        bars("Running, natively", i, RUNS)
        start = time.perf_counter()
        (probabilities,) = session.run(None, feeds)
        took.append(time.perf_counter() - start)
    bars("Running, natively", RUNS, RUNS)
    text, _ = ocr.text_of(probabilities, ocr.characters(session.get_modelmeta().custom_metadata_map))
    times = f"compile and load {loaded:.2f} s, first run {took[0]:.2f} s, best run {min(took):.2f} s"
    return Reading("natively", text, adapter_name(session.device), summary(session.get_placement()), times)


def read_in_browser(picture: Path, screenshot: Path, bars: Bars) -> Reading:
    """Reads the picture in the page, in headless Chromium; saves a screenshot of the page."""
    folder = assets.cache_dir() / "demo-site"
    site.build_site(folder, progress=bars)
    with chromium.serve(folder) as base, chromium.launch() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 1400})
        foreign = chromium.foreign_requests(page.context, base)
        page.goto(base)
        page.set_input_files("#picture-file", picture)
        page.click("#read")
        wait_for_text(page, bars)
        page.screenshot(path=screenshot, full_page=True)
        if foreign:
            raise WebrtError(f"the page asked another host: {foreign[0]}")
        return Reading(
            "in the page", page.inner_text("#text"), page.inner_text("#adapter"), page.inner_text("#placement-summary"),
            ", ".join(" ".join(pair.split()) for pair in page.locator("#times > div").all_inner_texts()),
        )  # fmt: skip


def wait_for_text(page: Page, bars: Bars) -> None:
    """Shows the page's progress until it has read the picture. Raises WebrtError with the page's own words."""
    deadline = time.monotonic() + BROWSER_SECONDS
    finished: set[str] = set()
    while time.monotonic() < deadline:
        if page.is_visible("#problem"):
            raise WebrtError(f"the page says: {page.inner_text('#problem-text')}")
        if page.inner_text("#text"):
            return
        for stage, percent in page.evaluate(STAGES):
            if stage not in finished:
                bars(f"In the page: {stage}", percent, 100)
            if percent == 100:
                finished.add(stage)
        time.sleep(0.3)
    raise WebrtError(f"the page did not answer within {BROWSER_SECONDS} s")


def pixels(picture: Path) -> np.ndarray[Any, Any]:
    """uint8[height, width, 3] of a picture."""
    return np.asarray(_pillow().Image.open(picture).convert("RGB"))


def draw(text: str, path: Path) -> None:
    """Writes a picture of one line of text, with pillow's own font."""
    pillow = _pillow()
    font = pillow.ImageFont.load_default(64)
    left, _, right, _ = font.getbbox(text)
    picture = pillow.Image.new("L", (int(right - left) + 48, 96), 255)
    pillow.ImageDraw.Draw(picture).text((24 - left, 48), text, fill=20, font=font, anchor="lm")
    picture.save(path)


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise WebrtError("the demo reads pictures with pillow; pip install pillow") from error
    return PIL


def report(readings: list[Reading], expected: str) -> bool:
    """Prints what was read; returns whether all of it is right."""
    for r in readings:
        print(f"\n{r.where}")
        for what in ("text", "adapter", "placement", "times"):
            print(f"  {what:<10} {getattr(r, what)}")
    wrong = [r for r in readings if r.text != expected]
    for r in wrong:
        print(f"\nread {r.where}: {r.text!r}, in the picture: {expected!r}")
    if not wrong:
        print(f"\n{'Both read' if len(readings) > 1 else 'Read'} exactly what is in the picture.")
    return not wrong


def main() -> int:
    """Exit code 0 when every side read the picture right, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", default=PICTURE_TEXT, help=f"what the picture says (default: {PICTURE_TEXT})")
    parser.add_argument("--no-browser", action="store_true", help="only on this machine")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where model and screenshot go (default: demo)")
    args = parser.parse_args()
    bars = Bars()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        picture = web_dir() / PICTURE
        if args.text != PICTURE_TEXT:
            draw(args.text, picture := args.out / "picture.png")
        model = shutil.copyfile(assets.demo_model_path(bars), args.out / "model.onnx")
        readings = [read_natively(model, picture, bars)]
        if args.no_browser:
            pass
        elif chromium.find_chromium() is None:
            print("No Chromium found: only this machine reads. Install it (Debian: apt-get install chromium).")
        else:
            screenshot = args.out / "page.png"
            readings.append(read_in_browser(picture, screenshot, bars))
            print(f"screenshot: {screenshot.resolve()}")
        return 0 if report(readings, args.text) else 1
    except (WebrtError, OSError) as error:
        print(f"ocr_demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
