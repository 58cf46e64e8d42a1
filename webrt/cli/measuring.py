"""What `webrt bench` and `webrt profile` share: a session over a model or a plan, and feeds for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webrt.cli import options
from webrt.cli.progress import Bars
from webrt.cli.run import open_session, positive

if TYPE_CHECKING:
    from webrt.inference import InferenceSession


def add_arguments(parser: argparse.ArgumentParser, *, repeat: int) -> None:
    """The arguments for inputs, providers and the number of runs."""
    options.add_input_arguments(parser, "--inputs")
    options.add_provider_arguments(parser)
    parser.add_argument(
        "--repeat", type=positive, default=repeat, metavar="N", help=f"so many warm runs (default: {repeat})"
    )


@contextmanager
def opened(
    path: Path, args: argparse.Namespace, bars: Bars
) -> Iterator[tuple[InferenceSession, dict[str, Any], list[str], float]]:
    """A session, feeds, a note on each input that was made up, and the seconds that the session took."""
    from webrt.cli import feeds

    what = f"Loading {path.name}"
    bars(what, 0, 1)
    start = time.perf_counter()
    with options.naming(path):
        session = open_session(
            path, args.provider, strict=args.strict,
            progress=lambda _, done, total: bars(what, min(done, total - 1), total),
        )  # fmt: skip
    took = time.perf_counter() - start
    bars(what, 1, 1)
    with session:
        made, notes = feeds.make_feeds(
            session.get_inputs(), args.input, options.once("dim", args.dim), args.random_seed, session.fixed_inputs
        )
        yield session, made, notes, took
