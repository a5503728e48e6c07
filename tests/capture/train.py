"""One rank of a small DDP job on the CPU, annotated for nsys; run by `capture.sh`.

The plant: rank 2 loads 40 ms longer in every iteration.

Usage: RANK=r LOCAL_RANK=r WORLD_SIZE=4 MASTER_ADDR=… MASTER_PORT=… python train.py ITERATIONS
"""

import sys
import time

import nvtx
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SLOW_RANK, SLOW_SECONDS, LOAD_SECONDS = 2, 0.040, 0.005


def main(iterations: int) -> None:
    """Train for a few iterations."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    )
    model.register_comm_hook(None, averaged)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dist.barrier()
    for iteration in range(iterations):
        with nvtx.annotate(f"step {iteration}"):
            with nvtx.annotate("load"):
                time.sleep(LOAD_SECONDS + (SLOW_SECONDS if rank == SLOW_RANK else 0))
                batch, target = torch.randn(32, 256), torch.randint(0, 10, (32,))
            with nvtx.annotate("forward"):
                loss = nn.functional.cross_entropy(model(batch), target)
            with nvtx.annotate("backward"):
                loss.backward()
            with nvtx.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


def averaged(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's gradient all-reduce, annotated and blocking."""
    gradients = bucket.buffer()
    with nvtx.annotate("all_reduce"):
        dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


if __name__ == "__main__":
    main(int(sys.argv[1]))
