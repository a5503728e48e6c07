"""Numbers of eight bytes in memory, for compiled code: what numba has no words for.

None of these looks whether the memory is there: that is for the caller to know. What is compiled
keeps a copy of them until the file that it stands in changes.
"""

from __future__ import annotations

import sys
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from rankscope.util.atomic_io import cache_home

numba.config.CACHE_DIR = str(cache_home() / "compiled")
USABLE = not numba.config.DISABLE_JIT and sys.byteorder == "little"

INLINE = 12
"""Bytes of a text that its view holds; arrow.apache.org/docs/format/Columnar.html, views."""

SPREAD = -0x61C8864680B583EB  # 2**64 / golden ratio: upper bits of a product depend on all bits

# Compiled as parts of what uses them, so that they take no time to load; no references counted.
helper = numba.njit(_nrt=False)
inlined = numba.njit(_nrt=False, forceinline=True)


@intrinsic
def word(_: Any, pages: Any, end: Any) -> Any:
    """The eight bytes before a place as a number, the first the most significant."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        begin = builder.sub(arguments[1], ir.Constant(ir.IntType(64), 8))
        place = builder.bitcast(builder.gep(data, [begin]), ir.IntType(64).as_pointer())
        return builder.bswap(builder.load(place, align=1))

    return numba.int64(pages, numba.int64), build


@intrinsic
def turned(_: Any, value: Any) -> Any:
    """A number with its bytes in the other order."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return numba.int64(numba.int64), build


@intrinsic
def put(_: Any, address: Any, value: Any) -> Any:
    """Store a number in eight bytes of memory."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[1], place, align=1)
        return context.get_dummy_value()

    return numba.void(numba.int64, numba.int64), build


@intrinsic
def word_at(_: Any, address: Any) -> Any:
    """The eight bytes of memory from an address on as a number, the first the least significant."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return numba.int64(numba.int64), build


@intrinsic
def byte_at(_: Any, address: Any) -> Any:
    """The byte of memory at an address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place), ir.IntType(64))

    return numba.int64(numba.int64), build


@inlined
def byte(pages: NDArray[np.uint8], at: int) -> int:
    """A byte, behind seven others at least."""
    return word(pages, at + 1) & 0xFF


@inlined
def fill(address: int, words: int, value: int) -> None:
    """Store a number so many times."""
    for place in range(words):
        put(address + 8 * place, value)
