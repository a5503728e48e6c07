"""Machine code of `records.decode`: made once with numba, kept in a file, run with llvmlite alone.

Importing numba takes five times as long as importing llvmlite, and twice its memory.
"""

from __future__ import annotations

import ctypes
import hashlib
from itertools import chain
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from rankscope.sources.columns.sqlite_pages.layout import Bytes, Decode, Outputs, Shapes, Target

NAME = "decode"
"""The one function of the machine code."""

SOURCES = ("layout.py", "shapes.py", "records.py", "machine_code.py")
"""The modules that the machine code depends on."""

FROM_C = {"memcpy", "memmove", "memset"}
"""Functions that LLVM itself may call."""

FASTEST = 3
"""LLVM's highest level of optimization."""


class NoMachineCode(Exception):
    """There is none; the message says why."""


def key() -> str:
    """A hash of everything that the machine code depends on: sources, LLVM, and processor."""
    parts = [Path(__file__).with_name(name).read_bytes() for name in SOURCES]
    parts += [
        llvmlite.__version__.encode(),
        llvm.get_process_triple().encode(),
        llvm.get_host_cpu_name().encode(),
        llvm.get_host_cpu_features().flatten().encode(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def make() -> bytes:
    """The machine code, as an object file of this processor.

    Raises:
        NoMachineCode: numba cannot be imported or cannot compile it.
    """
    numba: Any
    try:
        import numba
        from numba.core.errors import NumbaError
    except (ImportError, OSError) as error:  # absent, not made for this NumPy, a library missing
        raise NoMachineCode(f"numba cannot be imported ({error})") from error
    if numba.config.DISABLE_JIT:
        raise NoMachineCode("NUMBA_DISABLE_JIT is set")
    try:
        return _object_file(compiled(numba))
    except (NumbaError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise NoMachineCode(f"it cannot be compiled ({type(error).__name__}: {first})") from error


def load(code: bytes) -> Decode:
    """The function of an object file that `make` returned, callable from Python."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
        engine.get_function_address(NAME)
    )

    def decode(pages: Bytes, outputs: Outputs, shapes: Shapes, target: Target) -> int:
        arrays, numbers = _flat((pages, *outputs, *shapes, *target))
        addresses = np.array([array.ctypes.data for array in arrays], np.int64)
        sizes = np.array(numbers, np.int64)
        return int(function(addresses.ctypes.data, sizes.ctypes.data))

    decode.engine = engine  # type: ignore[attr-defined]  # it owns the machine code
    return decode


def _flat(values: tuple[Any, ...]) -> tuple[list[np.ndarray[Any, Any]], list[int]]:
    """The arrays among some values; and the other values and the sizes of arrays, in order."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    assert all(array.flags.c_contiguous for array in arrays)
    numbers = (value.shape if isinstance(value, np.ndarray) else (value,) for value in values)
    return arrays, [*chain.from_iterable(numbers)]


def compiled(numba: Any) -> str:
    """LLVM's assembly language for `records.decode`, with arguments that C can pass."""
    from rankscope.sources.columns.sqlite_pages.records import decode

    carray, i8, u8, flag = numba.carray, np.int64, np.uint8, np.bool_

    def from_c(at: Any, n: Any) -> int:
        """`decode` with what `_flat` makes of its arguments."""
        outputs = Outputs(
            n[1],
            carray(at[1], (n[2],), i8),
            n[3],
            carray(at[2], (n[4],), flag),
            n[5],
            n[6],
            carray(at[3], (n[7],), i8),
        )
        shapes = Shapes(
            carray(at[4], (n[8], n[9]), i8),
            carray(at[5], (n[10], n[11]), i8),
            carray(at[6], (n[12], n[13]), i8),
            carray(at[7], (n[14], n[15]), i8),
            carray(at[8], (n[16], n[17]), i8),
        )
        target = Target(
            carray(at[9], (n[18], n[19]), i8),
            carray(at[10], (n[20], n[21]), i8),
            carray(at[11], (n[22], n[23]), u8),
            carray(at[12], (n[24],), i8),
            carray(at[13], (n[25],), i8),
            carray(at[14], (n[26], n[27]), i8),
        )
        return decode(carray(at[0], (n[0],), u8), outputs, shapes, target)

    types = numba.types
    signature = types.int64(types.CPointer(types.voidptr), types.CPointer(types.int64))
    function = numba.cfunc(signature, error_model="numpy")(from_c)
    return str(function.inspect_llvm()).replace(function.native_name, NAME)


def _object_file(assembly: str) -> bytes:
    """Machine code of a module that exports nothing but `NAME`."""
    module, machine = llvm.parse_assembly(assembly), _machine()
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != NAME:
            each.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(FASTEST))
    builder.getModulePassManager().run(module, builder)
    needed = {
        each.name for each in (*module.functions, *module.global_variables) if each.is_declaration
    }
    needed = {name for name in needed if not name.startswith("llvm.")} - FROM_C
    if needed:
        raise NoMachineCode(f"it cannot do without {', '.join(sorted(needed))}")
    return bytes(machine.emit_object(module))


def _machine() -> Any:
    """LLVM's description of this processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=FASTEST,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
