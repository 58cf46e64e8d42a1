"""How cffi reads the C types that wgpu names by text."""

from __future__ import annotations

import re
from typing import Any


def hasten(ffi: Any) -> None:
    """Lets a `cffi.FFI` read a type's text with the typedefs that it mentions, instead of all that were declared.

    cffi parses the name of every typedef again before each new text: of wgpu's header 10 ms, for 60 texts until the
    first run is over. A typedef that a text does not mention changes nothing of how it is read. A cffi whose parser is
    made otherwise stays as it is.
    """
    parser: Any = getattr(ffi, "_parser", None)
    kind: Any = type(parser)
    if not (hasattr(kind, "_parse") and hasattr(parser, "_declarations")):
        return

    def parse(text: str) -> Any:
        words = {f"typedef {word}" for word in re.findall(r"\w+", text)}
        brief = kind()
        brief._declarations = {k: v for k, v in parser._declarations.items() if k in words}
        return brief._parse(text)

    parser._parse = parse
