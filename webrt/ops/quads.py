"""Quads: subgroups of four lanes, which SwiftShader has. What its kernels share.

There swapping a value with a neighbour is one instruction and any other exchange a dozen. So in step s a lane works on
what the lane with number lane ^ s has loaded, and stores what it makes of it in that one's place: nothing moves back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LANES = 4
SWAPS = ("{}", "quadSwapX({})", "quadSwapY({})", "quadSwapDiagonal({})")
"""What the lane with number lane ^ 0, 1, 2 and 3 has of a value."""
ORDER = ("lane", "(lane ^ 1u)", "(lane ^ 2u)", "(lane ^ 3u)")
"""Those numbers."""
_TERMS = ("(" + " + ".join(f"w{k}.{{c}} * x.{x}" for k, x in enumerate("xyzw")) + ")").format
_WEIGHTS = ", ".join(f"w{k}: vec4<f32>" for k in range(4))
PLUS = f"""fn plus(a: vec4<f32>, x: vec4<f32>, {_WEIGHTS}) -> vec4<f32> {{
  return vec4<f32>({", ".join(f"a.{c} + {_TERMS(c=c)}" for c in "xyzw")});
}}"""
"""a and the product of four rows of weights with x: component by component it is a tenth faster than a matrix."""
ACROSS = """fn across(v: vec4<A>, lane: u32) -> vec4<A> {
  let s = quadSwapX(v);
  let t = select(vec4<A>(v.x, s.x, v.z, s.z), vec4<A>(s.y, v.y, s.w, v.w), (lane & 1u) != 0u);
  let u = quadSwapY(t);
  return select(vec4<A>(t.xy, u.xy), vec4<A>(u.zw, t.zw), lane >= 2u);
}"""
"""Component `lane` of what each of the lanes has, in the order of the lanes."""
_PARAM = re.compile(r"\bp\.(\w+)")


def held(fns: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The parameters that functions read, and the functions with a variable held_<name> in the place of each: looking
    a parameter up takes as long as adding up ten vectors. Such a variable is not uniform: it is to be set after the
    last swap."""
    text = "\n".join(fns)
    names = tuple(sorted(set(_PARAM.findall(text))))
    return names, [*(f"var<private> held_{name}: u32;" for name in names), _PARAM.sub(r"held_\1", text)]


def hold(names: Sequence[str]) -> str:
    """The statements that set the variables of `held`."""
    return " ".join(f"held_{name} = p.{name};" for name in names)
