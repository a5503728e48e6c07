"""The hardware of an export: GPUs, CPU, network adapters, and versions of the driver.

`TARGET_INFO_CUDA_DEVICE` (2024 and newer) says which GPU is which device of a process. Without it
a device is the GPU of the same number, unless the process was given only some GPUs: then nothing
says which. Network adapters are read by NVIDIA's documentation: no real export with them was seen.
"""

from collections.abc import Iterable, Mapping

import polars as pl

from rankscope.model.reports import Gpu, Hardware
from rankscope.sources.columns.request import Columns
from rankscope.sources.environment import first_printable

GPUS, DEVICES, ADAPTERS = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_NIC_INFO"

VISIBLE = "CUDA_VISIBLE_DEVICES="
"""Beginning of the variable with which a process is given some GPUs under numbers of its own."""

UNNAMED = frozenset(("", "unknown"))
"""Names of CPUs that are none."""


def hardware(file: Columns, system: Mapping[str, list[str]], variables: Iterable[str]) -> Hardware:
    """The hardware that the export describes.

    Args:
        system: names and values of TARGET_INFO_SYSTEM_ENV.
        variables: the environment of the process; none is kept.
    """
    return Hardware(
        cpu=first_printable(
            name for name in system.get("CpuDescription", []) if name not in UNNAMED
        ),
        adapters=_adapters(file),
        software=_software(system),
        gpus=_gpus(file, any(each.startswith(VISIBLE) for each in variables)),
    )


def host_gpus(file: Columns) -> dict[int, tuple[str | None, str | None, str | None, int | None]]:
    """Number of each GPU of the host → its UUID, model, slot and number in CUDA."""
    if not file.has(GPUS, "id"):
        return {}
    gpus = file.read(GPUS, ["id", "cuDevice"], ["uuid", "name", "busLocation"]).drop_nulls("id")
    return {
        id_: (first_printable(_given(uuid)), first_printable(_given(name)), _bus(bus), device)
        for id_, device, uuid, name, bus in gpus.iter_rows()
    }


def spelled_guid(guid: int) -> str:
    """The GUID of a network adapter as text."""
    return f"0x{guid % 2**64:016x}"


def _gpus(file: Columns, some_are_hidden: bool) -> tuple[Gpu, ...]:
    known = host_gpus(file)
    if file.has(DEVICES, "gpuId", "cudaId", "pid"):
        rows = file.read(DEVICES, ["pid", "cudaId", "gpuId"]).drop_nulls().unique()
        return tuple(
            Gpu(pid, device, *known[id_][:3])
            for pid, device, id_ in rows.sort(pl.all()).iter_rows()
            if id_ in known
        )
    if len(known) == 1:
        [(uuid, name, bus, _)] = known.values()
        return (Gpu(None, None, uuid, name, bus),)
    if some_are_hidden:
        return ()
    return tuple(
        Gpu(None, id_ if device is None else device, uuid, name, bus)
        for id_, (uuid, name, bus, device) in known.items()
    )


def _given(text: str | None) -> list[str]:
    return [text] if text and text.strip() else []


def _bus(text: str | None) -> str | None:
    """A location such as `0000:3B:00.0` in one spelling."""
    printable = first_printable(_given(text))
    return None if printable is None else printable.lower()


def _adapters(file: Columns) -> tuple[str, ...]:
    if not file.has(ADAPTERS, "GUID"):
        return ()
    guids = file.read(ADAPTERS, ["GUID"])["GUID"].drop_nulls().unique().sort()
    return tuple(spelled_guid(guid) for guid in guids if guid)


def _software(system: Mapping[str, list[str]]) -> str | None:
    cuda = next(iter(system.get("CudaDriverVersion", [])), "")
    driver = next((each for each in system.get("NvDriverVersion", []) if each not in ("", "0")), "")
    parts = [f"driver {driver}"] if driver else []
    if cuda.isdigit() and len(cuda) < 8 and int(cuda):
        parts.append(f"CUDA {int(cuda) // 1000}.{int(cuda) % 1000 // 10}")
    return first_printable([", ".join(parts)]) if parts else None
