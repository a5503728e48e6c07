"""The machines of forged reports: tables of GPUs, network adapters and CPUs."""

from dataclasses import dataclass
from pathlib import Path

from tests.support import asked, edit, with_table


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
    with_table(
        report,
        "TARGET_INFO_GPU",
        "id, name text, busLocation text, uuid text, cuDevice",
        *(
            (id_, "NVIDIA H100 80GB HBM3", f"0000:{16 * id_ + 0x1B:02X}:00.0", uuid, id_)
            for id_, uuid in enumerate(machine.uuids)
        ),
    )
    if machine.used is not None:
        [(owner, device), *_] = asked(
            report, "select globalPid, deviceId from CUPTI_ACTIVITY_KIND_KERNEL limit 1"
        )
        pid = owner >> 24 & 0xFFFFFF
        rows = [(machine.used, device, pid, None), (0, device, pid + 1, None)]
        columns = "gpuId, cudaId, pid, uuid text"
        with_table(report, "TARGET_INFO_CUDA_DEVICE", columns, *rows)
    if machine.adapters:
        adapters = [(guid, "", place, "mlx5") for place, guid in enumerate(machine.adapters)]
        columns = "GUID, stateName text, nicId, name text"
        with_table(report, "TARGET_INFO_NIC_INFO", columns, *adapters)
    said = {"CpuDescription": machine.cpu, "NvDriverVersion": machine.driver}
    for name, value in said.items():
        if value is not None:
            edit(
                report,
                "insert into TARGET_INFO_SYSTEM_ENV select globalVid, devStateName, ?, 0, ? "
                "from TARGET_INFO_SYSTEM_ENV limit 1",
                *(name, value),
            )
    update = "update TARGET_INFO_SYSTEM_ENV set value ="
    edit(report, f"{update} '13000' where name = 'CudaDriverVersion'")
    edit(report, f"{update} ? || value where name = 'DeviceEnvironment'", machine.variables)
