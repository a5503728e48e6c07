"""An annotated program, and launchers: what the tests of wrappers run."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from rankscope.capture import snippet
from tests.support import Result

SETUP = """\
import os
from time import sleep
from types import SimpleNamespace

open("ran", "a").write(f"{os.getpid()}\\n")
steps, loader = 4, [(0, 0)] * 4
model = criterion = lambda *_: SimpleNamespace(backward=lambda: sleep(0.01))
optimizer = SimpleNamespace(step=lambda: sleep(0.001), zero_grad=lambda: None)
"""
"""What the loop of the snippet needs; torch it has not."""

VARIABLES = {
    "slurm": "SLURM_PROCID={rank} SLURM_LOCALID={local} SLURM_NODEID={node} SLURM_NTASKS={world} "
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0",
    "pbs": "PALS_RANKID={rank} PALS_LOCAL_RANKID={local} PALS_NODEID={node} PALS_APID=1234abcd-ef "
    "PMI_RANK={rank} PMI_SIZE={world} PBS_JOBID=77.server",
    "torchrun": "RANK={rank} LOCAL_RANK={local} GROUP_RANK={node} WORLD_SIZE={world} "
    "TORCHELASTIC_RESTART_COUNT=0",
    "mpirun": "PMI_RANK={rank} PMI_SIZE={world} MPI_LOCALRANKID={local} MPI_LOCALNRANKS=2",
    "k8s": "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_LOCAL_RANK={local} "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_SIZE={world} HOSTNAME=job-worker-{node}",
}
"""What each launcher tells a rank; mpirun as MPICH does."""


def environment(**variables: str) -> dict[str, str]:
    """Nothing but what the programs need: no other launcher's variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **variables}


def program(folder: Path) -> list[str]:
    """The command of a training loop with the snippet's ranges, in `folder`."""
    torchs, *loop = snippet().splitlines()
    assert torchs.startswith("from torch.cuda.nvtx import range as nvtx")
    ours = "from nvtx import annotate as nvtx"
    (folder / "train.py").write_text("\n".join([SETUP, ours, *loop]))
    return [sys.executable, "train.py"]


def launch(
    scheduler: str,
    command: list[str],
    folder: Path,
    ranks: Iterable[int],
    world: int = 4,
    **variables: str,
) -> list[Result]:
    """Run a command once a rank, two a node, with what the scheduler would tell each."""
    running = []
    for rank in ranks:
        output = VARIABLES[scheduler].format(rank=rank, local=rank % 2, node=rank // 2, world=world)
        pairs = dict(each.split("=", 1) for each in output.split())
        running.append(
            subprocess.Popen(
                command,
                cwd=folder,
                env=environment(**{**pairs, **variables}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    done = []
    for process in running:
        out, err = process.communicate(timeout=60)
        done.append(Result(process.returncode, out, err))
    return done
