"""Slices of tables to a free size in player.js: the answers and the refusals of the native session."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.test_tables import REFUSED, expected, image, model, table
from tests.web.driver import Player
from webrt.compiler.compile import compile_model
from webrt.errors import InputError

pytestmark = pytest.mark.xdist_group("chromium")


def test_sizes_up_to_the_table_run_and_others_are_refused(player: Player) -> None:
    session = player.load(compile_model(model(512)))
    for size in (0, 1, 511, 512):
        got = session.run({"x": image(size)})
        for name, want in zip("ym", expected(image(size), table(512)), strict=True):
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError) as e:
        session.run({"x": image(513)})
    assert str(e.value) == REFUSED
    session.release()
