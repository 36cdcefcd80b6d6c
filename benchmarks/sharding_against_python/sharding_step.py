"""One rank of the steps that sharding_step.cpp times, in Python: DistributedDataParallel over Gloo, and with it fused
AdamW (way ddp) or ZeroRedundancyOptimizer of fused AdamW (way zero).

    sharding_step.py mlp WIDTH BATCH | transformer LENGTH BATCH

compare.py sets the rank and its cores and sends lines "way steps"; the answer is the seconds and the last loss.
"""

import pathlib
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ddp_against_python"))
from ddp_step import make_subject  # noqa: E402


class Trained:
    def __init__(self, subject, make_optimizer):
        model, self.data, self.target = subject
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.optimizer = make_optimizer(self.model.parameters())

    def step(self):
        loss = cross_entropy(self.model(self.data).flatten(0, -2), self.target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    kind, size, batch, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), dist.get_rank()
    trained = {
        "ddp": Trained(make_subject(kind, size, batch, rank),
                       lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True)),
        "zero": Trained(make_subject(kind, size, batch, rank),
                        lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-4, fused=True,
                                                                   parameters_as_bucket_view=True)),
    }
    for line in sys.stdin:
        way, steps = line.split()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(steps)):
            loss = trained[way].step()
        print(f"{time.perf_counter() - begin:.6f} {loss:.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
