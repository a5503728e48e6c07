"""Two DDP ranks on the CPU under torch.profiler; rank 1 loads 150 ms longer at i % 5 == 3.

torchrun --nproc-per-node 2 torch_traces.py, in a venv with torch; writes trace-RANK-of-2.json.gz.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH, BATCH, STEPS = 256, 4, 24


class Samples(torch.utils.data.Dataset):
    """Random rows; the first of a batch takes its time."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            slow = rank == 1 and (index // BATCH) % 5 == 3
            time.sleep(0.15 if slow else 0.004)
        return torch.randn(WIDTH)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)]
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=STEPS - 2, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace(f"trace-{rank}-of-2.json.gz"),
) as profiler:
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=BATCH):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
dist.barrier()
dist.destroy_process_group()
