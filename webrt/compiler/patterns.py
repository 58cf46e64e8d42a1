"""The names of all that the passes look for: each has a test where it must fire and one where it must not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webrt.compiler import (
    fuse,
    hoist,
    moves,
    normalize,
    norms,
    one_hots,
    packed,
    padding,
    skips,
    tidy,
    transposes,
    weights,
)
from webrt.ops.channels_last import CHANNELS_LAST
from webrt.ops.composed import FOLDS, HEADS


def patterns() -> Mapping[str, tuple[str, ...]]:
    """By pass, in order: the operators by which its patterns are told apart, or nothing where it has only one."""
    told: Mapping[str, Iterable[str]] = {
        "keep_packed": packed.PRODUCTS,
        "remove_identities": tidy.UNCHANGED,
        "shorten_chains": tidy.CHAINS,
        "look_up_one_hots": one_hots.PRODUCTS,
        "join_constants": weights.CHAINED,
        "fold_into_weights": weights.JOINS,
        "fold_padding": padding.FILLS,
        "hoist_elementwise": sorted(hoist.MOVES),
        "fuse_norms": norms.NORMS,
        "channels_last": _names(CHANNELS_LAST),
        "fuse_transposes": transposes.PRODUCTS,
        "fuse_reductions": _names(FOLDS),
        "fuse_epilogues": _names(HEADS),
        "fuse_moves": sorted(moves.MOVES),
        "fuse_skips": skips.SKIPS,
    }
    passes = (*(name for name, _ in normalize.PASSES), *(name for name, _ in fuse.PASSES))
    return {name: tuple(told.get(name, ())) for name in passes}


def _names(operators: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{domain}:{name}" if domain else name for domain, name in operators]
