"""`webrt.runtime.cdecls`: types read with few typedefs are those read with all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cffi
import pytest

from webrt.runtime import cdecls

HEADER = """
typedef unsigned int Flags;
typedef struct BufferImpl* Buffer;
typedef enum Status { Status_Good = 1, Status_Bad = 2 } Status;
typedef struct Info { Buffer buffer; Flags flags; Status status; } Info;
typedef void (*Callback)(Status status, Info const * info, void * data);
"""
TEXTS = ["Flags", "Buffer", "Info", "Info *", "Info[]", "Buffer[3]", "Callback", "void(Status, Info const *, void *)",
         "char []", "uint64_t *", "struct Info *"]  # fmt: skip


def header(hastened: bool) -> Any:
    ffi = cffi.FFI()
    ffi.cdef(HEADER)
    if hastened:
        cdecls.hasten(ffi)
    return ffi


def said(work: Callable[[], Any]) -> str:
    with pytest.raises((cffi.CDefError, cffi.FFIError, TypeError)) as e:
        work()
    return f"{type(e.value).__name__}: {e.value}"


@pytest.mark.parametrize("text", TEXTS)
def test_types_are_the_same(text: str) -> None:
    plain, quick = header(False), header(True)
    if text.startswith("void("):
        types = [ffi.typeof(ffi.callback(text, lambda *a: None)) for ffi in (plain, quick)]
    else:
        types = [ffi.typeof(text) for ffi in (plain, quick)]
    assert types[0].cname == types[1].cname and types[0].kind == types[1].kind


def test_a_hastened_type_is_the_one_of_the_declarations() -> None:
    ffi = header(True)
    fields = dict(ffi.typeof("Info").fields)
    assert fields["buffer"].type is ffi.typeof("Buffer") and fields["flags"].type is ffi.typeof("Flags")
    value = ffi.new("Info *", {"flags": 7, "status": 2})
    assert (value.flags, value.status, ffi.sizeof("Info")) == (7, 2, header(False).sizeof("Info"))


@pytest.mark.parametrize("text", ["Nothing *", "Info *)", "void(Nothing *)"])
def test_errors_are_the_same(text: str) -> None:
    assert said(lambda: header(True).typeof(text)) == said(lambda: header(False).typeof(text))


def test_declarations_that_come_later_are_known() -> None:
    ffi = header(True)
    ffi.cdef("typedef Info More[2];")
    assert ffi.typeof("More").item is ffi.typeof("Info")


def test_a_text_is_read_with_the_typedefs_that_it_mentions() -> None:
    plain, quick = (len(header(hastened)._parser._parse("Info *x;")[0].ext) for hastened in (False, True))
    assert quick < plain


def test_another_cffi_stays_as_it_is() -> None:
    class Other:
        _parser = None

    cdecls.hasten(Other())
    assert Other._parser is None
