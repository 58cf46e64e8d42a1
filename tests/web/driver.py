"""player.js in a page, called from Python: sessions that take and give numpy arrays."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from playwright.sync_api import Page

from webrt import dtypes, errors
from webrt.plan import Plan
from webrt.planfile import dump
from webrt.runtime import tensor as T

DRIVER = "/tests/web/driver.js"


class PageError(Exception):
    """An error of the page that is none of webrt's."""


class Player:
    """player.js in `page`, which is at an address of a server that has the repository's web/ and tests/."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.evaluate("url => import(url)", DRIVER)

    def call(self, name: str, **args: Any) -> Any:
        """What a call of driver.js gives. Raises the webrt error of the same name as the page's, else PageError."""
        answer = self.page.evaluate("([name, text]) => webrtCall(name, text)", [name, json.dumps(args)])
        if "error" not in answer:
            return answer["value"]
        error = answer["error"]
        known = getattr(errors, error["name"], None)
        raise known(error["message"]) if known else PageError(f"{error['message']}\n{error['stack']}")

    def load(
        self, plan: Plan | bytes | str, device: int | None = None, host: bool = False, **options: Any
    ) -> PlayerSession:
        """A session of a plan, of a file's bytes, or of a file's address; `host`: the page's webrtHost runs steps."""
        source: dict[str, Any] = {"url": plan}
        if not isinstance(plan, str):
            data = dump(plan) if isinstance(plan, Plan) else plan
            source = {"plan": base64.b64encode(data).decode()}
        return PlayerSession(self, self.call("load", **source, device=device, withHost=host, **options))

    def check_kernels(self, kernels: Sequence[Any], device: int | None = None) -> list[dict[str, Any]]:
        """What Chromium's compiler says of kernels: {"name", "messages": [...], "missing": [features]} for each."""
        plain = [{"name": k.name, "wgsl": k.wgsl, "requires": dict(k.requires)} for k in kernels]
        found: list[dict[str, Any]] = self.call("checkKernels", kernels=plain, device=device)
        return found


class PlayerSession:
    """A session in the page."""

    def __init__(self, player: Player, made: Mapping[str, Any]) -> None:
        self.player, self.number = player, made["session"]
        self.inputs, self.outputs, self.progress = made["inputs"], made["outputs"], made["progress"]
        self.warned: list[str] = made["warned"]

    def run(self, feeds: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Outputs by name: arrays, or what driver.js gives for device tensors."""
        given = {name: pack(value) for name, value in feeds.items()}
        made = self.player.call("run", session=self.number, feeds=given, options=options)
        return {name: unpack(value) for name, value in made.items()}

    @property
    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.player.call("counters", session=self.number)
        return found

    def release(self) -> dict[str, int]:
        """Frees the session; its counters after that."""
        found: dict[str, int] = self.player.call("release", session=self.number)
        return found


def pack(value: Any) -> dict[str, Any]:
    """A feed for driver.js: an array, or a dict as driver.js takes it."""
    if isinstance(value, dict):
        return value
    array = np.asarray(value)
    name = T.dtype_name(array)
    if name == "string":
        return {"dtype": name, "dims": list(array.shape), "list": array.reshape(-1).tolist()}
    data = base64.b64encode(bytes(T.to_bytes(array))).decode()
    return {"dtype": name, "dims": list(array.shape), "base64": data}


def unpack(value: Mapping[str, Any]) -> Any:
    """The array that driver.js gave; device tensors and what is no tensor stay as they are."""
    if "base64" not in value:
        return dict(value)
    return T.from_bytes(base64.b64decode(value["base64"]), dtypes.BY_NAME[value["dtype"]], value["dims"])
