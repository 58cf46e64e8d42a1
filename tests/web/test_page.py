"""The page in Chromium, as a person uses it: the picture, a dropped model, a plan without Python, and bad files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, Page, Route

from tests.fuzz.seeds import GRAPHS, text_model
from webrt import planfile
from webrt.cli import chromium, site
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.host import run_model

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.timeout(600)]

SLOW = 300_000
STAGES = [
    "Loading Pyodide", "Loading packages", "Downloading the model", "Starting Python", "Compiling",
    "Uploading constants", "Making pipelines", "Running",
]  # fmt: skip


@pytest.fixture(scope="module")
def site_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page") / "site"
    site.build_site(folder)
    with chromium.serve(folder) as base:
        yield base


@pytest.fixture
def page(browser: Browser, site_url: str) -> Iterator[Page]:
    """The page, freshly loaded; afterwards it must have asked no other host and logged no error."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    foreign = chromium.foreign_requests(context, site_url)
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.goto(site_url)
    yield made
    context.close()
    assert foreign == [] and errors == []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """pixels float32[batch, 3, height, width] → logits float32[batch, 10]."""
    w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32), "w")
    axes = numpy_helper.from_array(np.array([2, 3]), "axes")
    nodes = [
        helper.make_node("Relu", ["pixels"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r", "axes"], ["m"], "mean", keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["logits"], "classes"),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "page", [pixels], [logits], [w, axes])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def drop(page: Page, path: Path) -> None:
    """Drops a file on the page, as a mouse does."""
    data = base64.b64encode(path.read_bytes()).decode()
    page.evaluate(
        """([name, data]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
          const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
          document.getElementById("drop").dispatchEvent(event);
        }""",
        [path.name, data],
    )


def settled(page: Page) -> None:
    """Waits until the page is done with what it was asked."""
    page.wait_for_selector("body[aria-busy=false]", timeout=SLOW)


def run_with_ones(page: Page) -> list[str]:
    """Runs the opened model on ones, 8×8; returns the cells of the outputs' first row."""
    page.fill("[data-size=height]", "8")
    page.fill("[data-size=width]", "8")
    page.fill("[data-size=batch]", "2")
    page.select_option("#fill", "ones")
    page.click("#run")
    page.wait_for_selector("#result:not([hidden])", timeout=SLOW)
    settled(page)
    return page.locator("#outputs tr").first.locator("td").all_inner_texts()


def expect_logits(cells: list[str], model: Path) -> None:
    import onnx

    logits = run_model(onnx.load(model), {"pixels": np.ones((2, 3, 8, 8), np.float32)})["logits"]
    name, dtype, shape, least, greatest, first = cells
    assert (name, dtype, shape) == ("logits", "float32", "[2, 10]")
    assert float(least) == pytest.approx(logits.min(), rel=1e-3) and float(greatest) == pytest.approx(
        logits.max(), rel=1e-3
    )
    shown = [float(x) for x in first.removesuffix(", …").split(", ")]
    np.testing.assert_allclose(shown, logits.reshape(-1)[: len(shown)], rtol=1e-3, atol=1e-4)


def expect_summary(page: Page, place: str) -> None:
    """Time, adapter and placement are said where one sees them without scrolling."""
    adapter = page.inner_text("#adapter").removeprefix("WebGPU: ")
    text, seen = page.inner_text(place), page.locator(place).bounding_box()
    assert f"s on {adapter}. " in text and page.inner_text("#placement-summary") in text
    assert seen and page.viewport_size and 0 <= seen["y"] <= page.viewport_size["height"] - seen["height"]


def test_reads_the_picture(page: Page, tmp_path: Path) -> None:
    assert "webrt" in page.title()
    page.click("#read")
    page.wait_for_selector("#stages >> text=Compiling", timeout=SLOW)
    assert page.get_attribute("body", "aria-busy") == "true", "the page shows progress while the worker works"
    settled(page)
    assert not page.is_visible("#problem"), page.inner_text("#problem")
    assert page.inner_text("#text") == "Hello WebGPU 2026"
    assert page.inner_text("#adapter").startswith("WebGPU: ")
    assert "on WebGPU" in page.inner_text("#placement-summary")
    assert "sure" in page.inner_text("#text-note")
    expect_summary(page, "#text-note")
    assert page.locator("#stages label").all_inner_texts() == STAGES
    assert page.locator("#times dt").all_inner_texts() == ["Python", "Compile and load", "First run", "Next run"]
    page.click("#read")
    settled(page)
    assert page.locator("#stages label").all_inner_texts() == ["Running"], "the model is opened once"
    assert page.inner_text("#text") == "Hello WebGPU 2026"


def test_what_is_no_picture_is_told(page: Page, model: Path) -> None:
    page.set_input_files("#picture-file", model)
    page.click("#read")
    settled(page)
    assert page.is_hidden("#work"), "no stage has begun"
    assert "no picture" in page.inner_text("#problem-text") and page.inner_text("#text") == ""


def test_dropped_model_is_compiled_and_run(page: Page, model: Path) -> None:
    drop(page, model)
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    assert page.inner_text("#model-name") == "model.onnx"
    assert page.locator("#inputs td").all_inner_texts() == ["pixels", "float32", "[batch, 3, height, width]"]
    assert page.inner_text("#model-note").startswith("Compiled in a sandbox: a plan of ")
    assert "Compiling in a sandbox" in page.locator("#stages label").all_inner_texts()
    assert page.locator("iframe").count() == 0, "the sandbox is gone"
    expect_logits(run_with_ones(page), model)
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "model.webrt"
    assert planfile.load(Path(download.value.path()).read_bytes()).inputs[0].name == "pixels"


def test_a_model_whose_inputs_decide_its_kernels_is_compiled_beside_its_device_where_the_user_says_so(
    page: Page, tmp_path: Path
) -> None:
    (tmp_path / "branches.onnx").write_bytes(text_model(GRAPHS["branches"]))
    drop(page, tmp_path / "branches.onnx")
    page.wait_for_selector("#trust", timeout=SLOW)
    settled(page)
    assert page.inner_text("#problem-title") == "NotConstant" and "the inputs c decide" in page.inner_text(
        "#problem-text"
    )
    page.click("#trust")
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    assert page.is_hidden("#problem") and page.inner_text("#model-note") == "Compiled here, under Pyodide."


def test_a_model_is_compiled_for_known_values_that_the_page_asks_for(page: Page, tmp_path: Path) -> None:
    """Of 8 the If takes Relu, of others Neg; k is int32, which JSON's numbers become."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[2] x, int32 k) => (float[2] y) <int32 eight = {8}> {
            is = Equal(k, eight)
            y = If(is) <
                then_branch = t () => (float[2] a) { a = Relu(x) },
                else_branch = e () => (float[2] b) { b = Neg(x) }>
        }""")
    onnx.save(model, tmp_path / "choice.onnx")
    drop(page, tmp_path / "choice.onnx")
    page.wait_for_selector("[data-known=k]", timeout=SLOW)
    settled(page)
    assert "--known" in page.inner_text("#problem-help") and page.is_visible("#trust")
    page.fill("[data-known=k]", "eight")
    page.click("#known button")
    assert page.evaluate("document.querySelector('[data-known=k]').validationMessage").startswith("A number")
    page.fill("[data-known=k]", "9")
    page.click("#known button")
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    assert page.is_hidden("#problem") and "[], fixed to 9" in page.locator("#inputs td").all_inner_texts()
    page.select_option("#fill", "ones")
    page.click("#run")
    settled(page)
    assert page.locator("#outputs tr").all_inner_texts()[0].split()[-2:] == ["-1,", "-1"]


def test_plan_runs_without_python(page: Page, model: Path) -> None:
    planfile.save(compile_model(model), model.with_suffix(".webrt"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/pyodide/**", lambda route: route.abort())
    drop(page, model.with_suffix(".webrt"))
    page.wait_for_selector("#feeds:not([hidden])")
    settled(page)
    assert page.is_hidden("#save") and "no Python" in page.inner_text("#model-note")
    expect_logits(run_with_ones(page), model)
    assert not [url for url in asked if "pyodide/" in url.removeprefix(page.url) and "player" not in url]
    assert "0 on the CPU" in page.inner_text("#placement-summary")
    expect_summary(page, "#model-ran")


def test_plan_with_nodes_for_the_cpu_runs_with_python(page: Page, model: Path) -> None:
    planfile.save(compile_model(model, CompileOptions(providers=("cpu",))), model.with_suffix(".webrt"))
    page.set_input_files("#model-file", model.with_suffix(".webrt"))
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    expect_logits(run_with_ones(page), model)
    assert "nodes for the CPU" in page.inner_text("#model-note") and page.is_hidden("#save")
    assert "3 on the CPU" in page.inner_text("#placement-summary")
    assert "not in the list" in page.inner_text("#placement")


def test_without_an_adapter_the_cpu_runs_it(page: Page, site_url: str, model: Path) -> None:
    def blind(route: Route) -> None:
        text = route.fetch().text()
        route.fulfill(
            body=f"Object.defineProperty(navigator, 'gpu', {{ value: undefined }});\n{text}",
            content_type="text/javascript",
        )

    page.context.route("**/worker.js", blind)
    page.reload()
    page.wait_for_selector("#adapter.bad")
    drop(page, model)
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    expect_logits(run_with_ones(page), model)
    assert "3 on the CPU" in page.inner_text("#placement-summary")
    planfile.save(compile_model(model), model.with_suffix(".webrt"))
    drop(page, model.with_suffix(".webrt"))
    page.wait_for_selector("#problem:not([hidden])", timeout=SLOW)
    assert page.inner_text("#problem-title") == "NoAdapter" and "Open the .onnx instead" in page.inner_text("#problem")


@pytest.mark.parametrize("kind", ["empty.webrt", "cut.webrt", "text.webrt"])
def test_bad_plan_is_told(page: Page, model: Path, kind: str) -> None:
    whole = planfile.dump(compile_model(model))
    content = {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"no plan at all, just some words"}[kind[:-6]]
    model.with_name(kind).write_bytes(content)
    drop(page, model.with_name(kind))
    page.wait_for_selector("#problem:not([hidden])", timeout=SLOW)
    settled(page)
    assert page.inner_text("#problem-title") == "PlanError" and kind in page.inner_text("#problem-text")
    assert (
        "webrt compile" in page.inner_text("#problem-help") and page.is_hidden("#feeds") and page.is_hidden("#result")
    )


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A plan that takes the greatest of 9×9 elements, so smaller pictures do not fit."""
    node = helper.make_node("MaxPool", ["x"], ["present.0.a_rather_long/name.value"], kernel_shape=[9, 9])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "h", "w"])
    y = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [1, 1, None, None])
    graph = helper.make_graph([node], "pool", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    planfile.save(compile_model(model), tmp_path / "pool.webrt")
    return tmp_path / "pool.webrt"


def run_pool(page: Page, size: int) -> None:
    page.fill("[data-size=h]", str(size))
    page.fill("[data-size=w]", str(size))
    page.click("#run")
    settled(page)


def test_progress_stands_still_after_a_failure(page: Page, pool: Path) -> None:
    drop(page, pool)
    page.wait_for_selector("#feeds:not([hidden])")
    settled(page)
    run_pool(page, 3)
    assert page.is_visible("#problem") and page.locator("#stages .stopped label").all_inner_texts() == ["Running"]
    assert page.locator("#stages .amount").all_inner_texts() == ["stopped"]
    assert page.locator("progress:not([value])").count() == 0
    run_pool(page, 9)
    assert page.is_hidden("#problem") and page.locator("#stages .stopped").count() == 0


def test_names_break_after_separators_only(page: Page, pool: Path) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    drop(page, pool)
    page.wait_for_selector("#feeds:not([hidden])")
    settled(page)
    run_pool(page, 9)
    cell = page.locator("#outputs td.name")
    assert page.inner_text("#placement-summary") == "1 node: 1 on WebGPU, 0 on the CPU, 0 need no work"
    assert cell.inner_text() == "present.0.a_rather_long/name.value"
    lines = cell.evaluate(
        """(cell) => [...cell.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => {
          const range = document.createRange();
          range.selectNode(n);
          return new Set([...range.getClientRects()].map((r) => r.top)).size;
        })"""
    )
    assert lines == [1] * 7


def test_bad_models_are_told_and_the_page_goes_on(page: Page, model: Path) -> None:
    whole = model.read_bytes()
    bad = {"text.onnx": b"This is no model.\n", "operator.onnx": whole.replace(b"ReduceMean", b"ReduceFlop")}
    for name, content in bad.items():
        model.with_name(name).write_bytes(content)
        drop(page, model.with_name(name))
        settled(page)
        assert page.is_visible("#problem") and page.is_hidden("#feeds"), name
        assert page.locator("progress:not([value])").count() == 0 and page.locator(".stopped label").count() <= 1, name
        words = page.inner_text("#problem-text")
        assert words and name in words and "Traceback" not in words and "\n" not in words, words
    assert "ReduceFlop" in words and page.inner_text("#problem-title") == "UnsupportedOp"
    drop(page, model)
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    expect_logits(run_with_ones(page), model)


def test_an_empty_model_is_refused_without_python(page: Page, tmp_path: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    (tmp_path / "empty.onnx").write_bytes(b"")
    drop(page, tmp_path / "empty.onnx")
    page.wait_for_selector("#problem:not([hidden])")
    settled(page)
    assert page.inner_text("#problem-title") == "InvalidModel"
    assert page.inner_text("#problem-text") == "empty.onnx is empty (zero bytes)"
    assert not [url for url in asked if "/pyodide/" in url and "player" not in url]


def test_everything_has_a_name_and_the_keyboard_reaches_it(page: Page) -> None:
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, button, img")].filter((e) =>
          !(e.labels?.length || e.textContent.trim() || e.alt || e.ariaLabel)).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["read", "picture-file", "model-file"]


def losable(page: Page) -> None:
    """The page, loaded anew: its worker destroys its devices when the channel "lose" says so."""
    prelude = """
      const asked = GPUAdapter.prototype.requestDevice;
      const devices = [];
      GPUAdapter.prototype.requestDevice = async function request(...args) {
        const device = await asked.apply(this, args);
        devices.push(device);
        return device;
      };
      const channel = new BroadcastChannel("lose");
      channel.onmessage = () => {
        devices.splice(0).forEach((device) => device.destroy());
        channel.postMessage("lost");
      };
    """

    def with_prelude(route: Route) -> None:
        route.fulfill(body=prelude + route.fetch().text(), content_type="text/javascript")

    page.context.route("**/worker.js", with_prelude)
    page.reload()


@pytest.mark.parametrize("python", [False, True], ids=["plan", "plan with host steps"])
def test_a_lost_device_is_replaced_and_the_page_says_so(page: Page, model: Path, tmp_path: Path, python: bool) -> None:
    losable(page)
    plan = tmp_path / "model.webrt"
    planfile.save(compile_model(model), plan)
    if python:
        made = helper.make_node("Unique", ["a"], ["u"])
        nodes = [helper.make_node("Abs", ["pixels"], ["a"]), made, helper.make_node("Neg", ["u"], ["logits"])]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("pixels", [4]), ("logits", ["n"]))]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
        planfile.save(
            compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)), plan
        )
    drop(page, plan)
    page.wait_for_selector("#feeds:not([hidden])", timeout=SLOW)
    settled(page)
    for lost in (False, True, False):
        if lost:
            page.evaluate(
                """() => new Promise((resolve) => {
                  const channel = new BroadcastChannel("lose");
                  channel.onmessage = resolve;
                  channel.postMessage("lose");
                })"""
            )
        page.select_option("#fill", "ones")
        page.click("#run")
        page.wait_for_selector("#result:not([hidden])", timeout=SLOW)
        settled(page)
        assert page.inner_text("#model-ran").startswith("The device was lost; another one took over. ") == lost
        assert page.locator("#outputs tr").first.locator("td").first.inner_text() == "logits"
