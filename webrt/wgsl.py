"""From a WGSL body and what it declares to a kernel's text.

A body is a file of `shaders/`. Its first lines say what the generated prologue must give it:

    //! bindings a b out:w      storage buffers, `:w` = written, `:atomic` = atomic words; `*` = any more
    //! params m n k            u32 words of the uniform block `p`; `*` = any more
    //! consts TILE             `const TILE = …;`
    //! fns epilogue            functions that the caller writes
    //! types T                 aliases beyond those of the bindings
    //! use int64 half          files of shaders/lib/ that it needs

`build` refuses anything missing or extra. For a binding `a` the prologue has the variable `a` (an array of storage
words), the alias `A` (the type to compute in), `load_a(i)` for element i, and for a written one `store_a(i, v)` where
an element is a whole word, else `pack_a(v0, v1[, v2, v3])` -> the word. An array of vec4s and a texture have
`fours_a(t)`, the words 4t … 4t+3, in place of `a[t]`: a body that reads through these functions alone serves buffers
and textures. A parameter is read as `p.x` everywhere. Nothing of a model (names, strings) may enter the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from webrt import dtypes as T
from webrt.dtypes import DType
from webrt.errors import KernelError
from webrt.plan import TEXTURE_WIDTH, Kernel
from webrt.resources import shader_text

_KEYS = ("bindings", "params", "consts", "fns", "types", "use")
_BINDING = re.compile(r"^@group\(0\) @binding\((\d+)\) var(?:<[^>]*>)? (\w+):", re.M)
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_UNIFORM = "@group(0) @binding(0) var<uniform> p: Params;"
_PARAM = re.compile(r"\bp\.(\w+)")
_MAIN = re.compile(r"^fn main\([^{]*\{", re.M)
_TOGETHER = re.compile(r"Barrier\(|\bsubgroup|\bquad[A-Z]|workgroupUniformLoad")
_SAMPLER = "@group(0) @binding({}) var nearest_texel: sampler;"
_FORMATS = {"f32": "float", "u32": "uint"}


@dataclass(frozen=True)
class Bind:
    """A storage binding: `access` "r", "w" or "atomic" (32-bit integers, without load_ and store_); `vec` 4 makes the
    array's element a vec4 of words (32-bit types only). One that is read may have the `loader` "sampled" or "storage":
    a texture of its words in rows of TEXTURE_WIDTH vec4s. `start`: the parameter that says from which four of words on
    it has what is read."""

    name: str
    dtype: DType
    access: str = "r"
    vec: int = 1
    loader: str = "buffer"
    start: str = ""

    @property
    def alias(self) -> str:
        return self.name[0].upper() + self.name[1:]

    @property
    def is_texture(self) -> bool:
        return self.loader != "buffer"

    @property
    def by_sampler(self) -> bool:
        """Whether it is a texture of floats that is read through a sampler."""
        return self.loader == "sampled" and self.dtype.word == "f32"


@dataclass(frozen=True)
class Header:
    """What a body's first lines declare, by key."""

    declared: Mapping[str, tuple[str, ...]]
    body: str


def build(
    body: str,
    *,
    name: str,
    binds: Sequence[Bind],
    params: Sequence[str] = (),
    consts: Mapping[str, int | float | bool] | None = None,
    fns: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    use: Iterable[str] = (),
    requires: Mapping[str, Any] | None = None,
) -> Kernel:
    """The kernel made of `shaders/<body>.wgsl` under its prologue. Raises KernelError where the header is not met."""
    literals = tuple((k, _literal(v)) for k, v in (consts or {}).items())
    text, digest = _built(
        body, tuple(binds), tuple(params), literals, tuple(fns), tuple((types or {}).items()), tuple(use)
    )
    return Kernel(name, text, digest, dict(requires or {}))


@lru_cache(maxsize=512)
def _built(
    body: str,
    binds: tuple[Bind, ...],
    params: tuple[str, ...],
    consts: tuple[tuple[str, str], ...],
    fns: tuple[str, ...],
    types: tuple[tuple[str, str], ...],
    use: tuple[str, ...],
) -> tuple[str, str]:
    """A kernel's text and its hash: passes lower the same node several times, and most of a model's nodes are alike."""
    header = read_header(body)
    _check(body, header, binds, params, [k for k, _ in consts], fns, [k for k, _ in types])
    libs = dict.fromkeys([*header.declared["use"], *use, *(lib for b in binds for lib in _libs(b))])
    parts = [f"alias {k} = {v};" for k, v in types]
    parts += [f"const {k} = {v};" for k, v in consts]
    parts += _params(params)
    parts += [_declaration(b, i + 1) for i, b in enumerate(binds)]
    parts += _sampler(binds)
    parts += [shader_text(f"lib/{lib}") for lib in libs]
    parts += [_accessors(b) for b in binds]
    parts += [*fns, header.body]
    text = "\n".join(p.strip("\n") for p in parts if p) + "\n"
    text = _held(text, [b.start for b in binds if b.start] if _TOGETHER.search(text) else params)
    text = _with_units(text, binds)
    return text, _digest(text)


@lru_cache(maxsize=256)
def read_header(body: str) -> Header:
    """The declarations of `shaders/<body>.wgsl` and its text without them."""
    declared: dict[str, tuple[str, ...]] = dict.fromkeys(_KEYS, ())
    lines = shader_text(body).splitlines()
    count = 0
    for line in lines:
        if not line.startswith("//!"):
            break
        key, *words = line[3:].split()
        if key not in _KEYS:
            raise KernelError(f"shaders/{body}.wgsl declares {key!r}; known are {', '.join(_KEYS)}")
        declared[key] += tuple(words)
        count += 1
    return Header(declared, "\n".join(lines[count:]))


def in_place(kernel: Kernel, read: int, written: int) -> Kernel:
    """The kernel that finds operand `read` in the buffer of binding `written` (from 0 on); both are bound alike."""
    names = {int(m[1]) - 1: m[2] for m in _BINDING.finditer(kernel.wgsl)}
    text = re.sub(rf"^@group\(0\) @binding\({read + 1}\) .*\n", "", kernel.wgsl, count=1, flags=re.M)
    text = re.sub(rf"\b{names[read]}\[", f"{names[written]}[", text)
    text = _BINDING.sub(lambda m: m[0].replace(f"({m[1]})", f"({int(m[1]) - (int(m[1]) > read)})", 1), text)
    return Kernel(kernel.name, text, _digest(text), dict(kernel.requires))


def excerpt(wgsl: str, line: int, around: int = 4) -> str:
    """Numbered lines about `line` (from 1), for error messages."""
    lines = wgsl.splitlines()
    low, high = max(0, line - 1 - around), min(len(lines), line + around)
    return "\n".join(f"{'>' if i + 1 == line else ' '}{i + 1:4} {lines[i]}" for i in range(low, high))


def dialect(kernel: Kernel, tint: bool) -> str:
    """The text as a compiler takes it: Tint wants `enable subgroups;`, naga refuses that line."""
    features = kernel.requires.get("features", ())
    enables = ["enable f16;"] if "shader-f16" in features else []
    if tint and "subgroups" in features:
        enables.append("enable subgroups;")
    return "".join(e + "\n" for e in enables) + kernel.wgsl


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check(
    body: str,
    header: Header,
    binds: Sequence[Bind],
    params: Sequence[str],
    consts: Sequence[str],
    fns: Sequence[str],
    types: Sequence[str],
) -> None:
    given = {
        "bindings": [b.name + ("" if b.access == "r" else f":{b.access}") for b in binds],
        "params": list(params),
        "consts": consts,
        "fns": [m.group(1) for f in fns for m in re.finditer(r"^\s*fn (\w+)", f, re.M)],
        "types": types,
    }
    for key, have in given.items():
        want = header.declared[key]
        missing = [w for w in want if w != "*" and w not in have]
        extra = [] if "*" in want or key == "fns" else [h for h in have if h not in want]
        if missing or extra:
            raise KernelError(f"shaders/{body}.wgsl: {key} missing {missing}, extra {extra}")
    for n in [*(b.name for b in binds), *params]:
        if not _NAME.match(n):
            raise KernelError(f"shaders/{body}.wgsl: {n!r} is no name for a binding or a parameter")


def _params(params: Sequence[str]) -> list[str]:
    if not params:
        return []
    fields = "".join(f"  {n}: u32,\n" for n in params)
    return [f"struct Params {{\n{fields}}}", _UNIFORM]


def _held(text: str, params: Sequence[str]) -> str:
    """The text with those of the parameters that it names read once, at the start of main: on SwiftShader each read of
    one takes as long as some fifteen FMAs of vectors. A variable is not uniform, so kernels whose invocations work
    together read all but places of operands where they need them."""
    named = [n for n in params if n in set(_PARAM.findall(text))]
    if not named or _UNIFORM not in text:
        return text
    reads = " ".join(f"held.{n} = p.{n};" for n in named)
    text = _PARAM.sub(lambda m: f"held.{m[1]}" if m[1] in named else m[0], text)
    text = text.replace(_UNIFORM, f"{_UNIFORM}\nvar<private> held: Params;", 1)
    return _MAIN.sub(lambda m: f"{m[0]}\n  {reads}", text, count=1)


def _declaration(b: Bind, index: int) -> str:
    if not b.dtype.on_device or (b.vec != 1 and b.dtype.bits != 32):
        raise KernelError(f"binding {b.name!r} cannot hold {b.dtype} with vec {b.vec}")
    alias = f"alias {b.alias} = {b.dtype.wgsl};"
    if b.is_texture:
        return f"{alias}\n@group(0) @binding({index}) var {b.name}: {_texture(b)};"
    word = f"vec4<{b.dtype.word}>" if b.vec == 4 else b.dtype.word
    if b.access == "atomic":
        word = f"atomic<{word}>"
    access = "read" if b.access == "r" else "read_write"
    return f"{alias}\n@group(0) @binding({index}) var<storage, {access}> {b.name}: array<{word}>;"


def _texture(b: Bind) -> str:
    if b.access != "r" or b.dtype.bits == 64 or b.loader not in ("sampled", "storage"):
        raise KernelError(f"{b.dtype} {b.name!r} with access {b.access!r} has no loader {b.loader!r}")
    word = "f32" if b.dtype.word == "f32" else "u32"
    return f"texture_2d<{word}>" if b.loader == "sampled" else f"texture_storage_2d<rgba32{_FORMATS[word]}, read>"


def _sampler(binds: Sequence[Bind]) -> list[str]:
    """What textures of floats are read through: a sampler of the nearest texel, after the bindings, and the size of a
    texel in `unit_<name>`. Tint guards each textureLoad by the texture's levels and size, at the price of two more
    loads on SwiftShader, where sampling is cheaper than loading without that, too."""
    names = [b.name for b in binds if b.by_sampler]
    units = [f"var<private> unit_{name}: vec2<f32>;" for name in names]
    return [f"{_SAMPLER.format(len(binds) + 1)}", *units] if names else []


def _with_units(text: str, binds: Sequence[Bind]) -> str:
    """The text whose main begins with the sizes of texels: 1 / columns, and 1 / rows of TEXTURE_WIDTH."""
    units = [
        f"  unit_{b.name} = vec2<f32>(1.0, {1 / TEXTURE_WIDTH}) / vec2<f32>(vec2<i32>(textureDimensions({b.name})));\n"
        for b in binds if b.by_sampler
    ]  # fmt: skip
    if not units:
        return text
    made, found = _MAIN.subn(lambda m: f"{m[0]}\n{''.join(units)}", text, count=1)
    if not found:
        raise KernelError("a kernel that reads textures has no line that begins with fn main")
    return made


def _libs(b: Bind) -> tuple[str, ...]:
    if b.dtype in (T.F16, T.BF16):
        return ("half",)
    if b.dtype in T.SMALL_FLOATS:
        return ("float8",)
    return ("int64",) if b.dtype in T.INTS64 else ()


def _accessors(b: Bind) -> str:
    if b.access == "atomic":
        return ""
    load = f"fn load_{b.name}(i: u32) -> {b.alias} {{ return {_load(b)}; }}"
    if b.dtype.bits < 32:
        load = f"fn word_{b.name}(word: u32) -> {b.dtype.word} {{ return {_word(b, 'word')}; }}\n{load}"
    if b.is_texture or b.vec == 4:
        at, head = ("place", f"let four = place - p.{b.start}; ") if b.start else ("four", "")
        load = f"fn fours_{b.name}({at}: u32) -> vec4<{b.dtype.word}> {{ {head}return {_fours(b)}; }}\n{load}"
    if b.access == "r":
        return load
    per = b.dtype.per_word
    if per == 1:
        target = f"{b.name}[i >> 2u][i & 3u]" if b.vec == 4 else f"{b.name}[i]"
        return load + f"\nfn store_{b.name}(i: u32, v: {b.alias}) {{ {target} = v; }}"
    args = ", ".join(f"v{k}: {b.alias}" for k in range(per))
    bits = " | ".join(f"({_bits(b.dtype, f'v{k}')} << {k * b.dtype.bits}u)" for k in range(per))
    return load + f"\nfn pack_{b.name}({args}) -> u32 {{ return {bits}; }}"


def _fours(b: Bind) -> str:
    if not b.is_texture:
        return f"{b.name}[four]"
    width = TEXTURE_WIDTH
    if b.by_sampler:
        # The middle of the texel, where no rounding can miss it: a float holds each of a texture's places exactly.
        at = f"vec2<f32>(f32(i32(four & {width - 1}u)) + 0.5, f32(i32((four & {2**32 - width}u) | {width // 2}u)))"
        return f"textureSampleLevel({b.name}, nearest_texel, {at} * unit_{b.name}, 0.0)"
    if b.loader == "sampled":
        # SwiftShader, which these are for, shifts lane by lane; a float holds each of a texture's places exactly.
        at = f"vec2<i32>(i32(four & {width - 1}u), i32(f32(i32(four)) * {1 / width}))"
        texel = f"textureLoad({b.name}, {at}, 0)"
    else:
        texel = f"textureLoad({b.name}, vec2<u32>(four & {width - 1}u, four >> {width.bit_length() - 1}u))"
    return f"bitcast<vec4<i32>>({texel})" if b.dtype.word == "i32" else texel


def _word(b: Bind, i: str) -> str:
    """The expression of word `i`, a name or an expression in parentheses."""
    if b.is_texture or b.vec == 4:
        return f"fours_{b.name}({i} >> 2u)[{i} & 3u]"
    return f"{b.name}[{i} - 4u * p.{b.start}]" if b.start else f"{b.name}[{i}]"


def _load(b: Bind) -> str:
    d = b.dtype
    if d.per_word == 1:
        return _word(b, "i")
    shift, mask = (2, 3) if d.bits == 8 else (1, 1)
    word, at = _word(b, f"(i >> {shift}u)"), f"(i & {mask}u) * {d.bits}u"
    if d.wgsl == "i32":
        return f"extractBits(bitcast<i32>({word}), {at}, {d.width}u)"
    raw = f"extractBits({word}, {at}, {d.width}u)"
    if d in T.SMALL_FLOATS:
        return f"f32_from_{d.name}({raw})"
    if d == T.BOOL:
        return f"{raw} != 0u"
    if d == T.F16:
        return f"unpack2x16float({raw}).x"
    return f"bitcast<f32>({raw} << 16u)" if d == T.BF16 else raw


def _bits(d: DType, v: str) -> str:
    if d == T.BOOL:
        return f"select(0u, 1u, {v})"
    if d == T.F16:
        return f"f16_bits({v})"
    if d == T.BF16:
        return f"bf16_bits({v})"
    if d in T.SMALL_FLOATS:
        return f"{d.name}_bits({v})"
    return f"(bitcast<u32>({v}) & {(1 << d.width) - 1}u)"


def _literal(v: int | float | bool) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return f"{v}u" if v >= 0 else f"{v}i"
    text = repr(float(v))
    return text + "f"
