"""One plan over a decoder's steps with a cache that grows on the device, as JSON.

For each decoder of a folder (inputs `past_key_values.*`, outputs `present.*`): a prompt of 4 tokens, then one token per
step. Printed are the plans, the pipelines and the buffers made after the second step, the device bytes
at the end against those of a new session that does the last step alone, and the bytes that crossed in the last step.

python -m benchmarks.decoding --models DIR [--only NAME] [--steps 64]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.models import Model, add_arguments, chosen
from webrt.inference import InferenceSession
from webrt.runtime.device import Counters
from webrt.runtime.native import NativeDevice

Array = np.ndarray[Any, Any]
PROMPT = 4


class Decoder:
    """A session and what it has said so far; the cache is where the last step left it."""

    def __init__(self, model: Model) -> None:
        self.session = InferenceSession(str(model.path))
        names = [o.name for o in self.session.get_outputs()]
        self.caches = [n for n in names if n.startswith("present.")]
        self.names = names
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.past: dict[str, Any] = {
            name: np.zeros([1, *(s if isinstance(s, int) else 0 for s in i.shape[1:])], np.float32)
            for name, i in self.inputs.items()
            if name.startswith("past_key_values.")
        }
        self.seen = 0

    def step(self, tokens: Array) -> Array:
        """Feeds int64 [1, n] tokens; returns the logits. The cache never leaves the device."""
        self.seen += tokens.shape[1]
        feeds: dict[str, Any] = {"input_ids": tokens, "attention_mask": np.ones((1, self.seen), np.int64), **self.past}
        if "position_ids" in self.inputs:
            feeds["position_ids"] = np.arange(self.seen - tokens.shape[1], self.seen)[None]
        where = {n: "device" for n in self.caches}
        made = dict(zip(self.names, self.session.run(None, feeds, output_location=where), strict=True))
        for name in self.caches:
            old = self.past[name.replace("present.", "past_key_values.")]
            if hasattr(old, "close"):
                old.close()
            self.past[name.replace("present.", "past_key_values.")] = made[name]
        return np.asarray(made["logits"])

    def counters(self) -> Counters:
        device = self.session.device
        assert isinstance(device, NativeDevice)
        return replace(device.counters)


def measure(model: Model, steps: int) -> dict[str, Any]:
    """One model's row."""
    decoder, marks, plans = Decoder(model), list[Counters](), set[int]()
    tokens, start = np.array([[1, 2, 3, 4][:PROMPT]]), time.perf_counter()
    for _ in range(steps):
        logits = decoder.step(tokens)
        tokens = logits[:, -1:].argmax(-1)
        marks.append(decoder.counters())
        plans.add(id(decoder.session.plan))
    seconds = time.perf_counter() - start
    alone = _alone(model, decoder, tokens)
    last, before = marks[-1], marks[-2]
    row = {
        "model": model.name, "steps": steps, "plans": len(plans),
        "pipelines_after_second": last.pipelines - marks[1].pipelines,
        "buffers_after_second": last.created - marks[1].created,
        "bytes": last.bytes, "bytes_of_the_last_step_alone": alone, "ratio": round(last.bytes / alone, 3),
        "written_by_last_step": last.written - before.written, "read_by_last_step": last.read - before.read,
        "seconds_per_step": round(seconds / steps, 4),
    }  # fmt: skip
    decoder.session.close()
    return row


def _alone(model: Model, decoder: Decoder, tokens: Array) -> int:
    """The bytes that a new session holds after one step as long as the last one."""
    others = decoder.counters().bytes
    fresh = Decoder(model)
    fresh.past = {name: _host(cache) for name, cache in decoder.past.items()}
    fresh.seen = decoder.seen
    fresh.step(tokens)
    held = fresh.counters().bytes - others
    fresh.session.close()
    return held


def _host(cache: Any) -> Array:
    return np.asarray(cache.numpy() if hasattr(cache, "numpy") else cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=64, help="runs (default: 64)")
    args = parser.parse_args()
    for model in chosen(args):
        if any(name.startswith("past_key_values.") for name in model.feeds):
            print(json.dumps(measure(model, args.steps)), flush=True)


if __name__ == "__main__":
    main()
