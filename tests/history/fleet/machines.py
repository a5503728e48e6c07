"""The machines of forged reports: tables of GPUs, network adapters and CPUs."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

GPUS = "create table TARGET_INFO_GPU (id int, name text, busLocation text, uuid text, cuDevice int)"
DEVICES = "create table TARGET_INFO_CUDA_DEVICE (gpuId int, cudaId int, pid int, uuid text)"
ADAPTERS = "create table TARGET_INFO_NIC_INFO (GUID integer, stateName text, nicId int, name text)"


@dataclass(frozen=True)
class Machine:
    """What a report says of its machine.

    `uuids`: of the GPUs, in the order of their numbers. `used`: number of the GPU that the process
    calls by its device's number; None: the report does not say.
    """

    uuids: tuple[str, ...]
    used: int | None = None
    adapters: tuple[int, ...] = ()
    cpu: str | None = None
    driver: str | None = None
    variables: str = ""


def furnish(report: Path, machine: Machine) -> None:
    """Write the tables of a machine into an export."""
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute(GPUS)
        for id_, uuid in enumerate(machine.uuids):
            row = (id_, "NVIDIA H100 80GB HBM3", f"0000:{16 * id_ + 0x1B:02X}:00.0", uuid, id_)
            connection.execute("insert into TARGET_INFO_GPU values (?, ?, ?, ?, ?)", row)
        if machine.used is not None:
            [(owner, device)] = connection.execute(
                "select globalPid, deviceId from CUPTI_ACTIVITY_KIND_KERNEL limit 1"
            ).fetchall()
            pid = owner >> 24 & 0xFFFFFF
            connection.execute(DEVICES)
            rows = [(machine.used, device, pid, None), (0, device, pid + 1, None)]
            connection.executemany("insert into TARGET_INFO_CUDA_DEVICE values (?, ?, ?, ?)", rows)
        if machine.adapters:
            connection.execute(ADAPTERS)
            adapters = [(guid, "", place, "mlx5") for place, guid in enumerate(machine.adapters)]
            connection.executemany("insert into TARGET_INFO_NIC_INFO values (?, ?, ?, ?)", adapters)
        said = {"CpuDescription": machine.cpu, "NvDriverVersion": machine.driver}
        for name, value in said.items():
            if value is not None:
                connection.execute(
                    "insert into TARGET_INFO_SYSTEM_ENV select globalVid, devStateName, ?, 0, ? "
                    "from TARGET_INFO_SYSTEM_ENV limit 1",
                    (name, value),
                )
        connection.execute("update TARGET_INFO_SYSTEM_ENV set value = '13000' "
                           "where name = 'CudaDriverVersion'")  # fmt: skip
        connection.execute(
            "update TARGET_INFO_SYSTEM_ENV set value = ? || value where name = 'DeviceEnvironment'",
            (machine.variables,),
        )
