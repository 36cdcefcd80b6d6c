"""One rank of the step that ddp_step.cpp times, in Python: DistributedDataParallel over Gloo, fused AdamW.

    ddp_step.py mlp WIDTH BATCH | transformer LENGTH BATCH

compare.py sets the rank and its cores and sends lines "way steps"; the answer is the seconds and the last loss.
"""

import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402


def make_subject(kind, size, batch, rank):
    if kind == "mlp":
        model = models.Mlp([size] * 9 + [10])
        data, target = models.made_up_numbers((batch, size), rank), models.made_up_classes(batch, 10, rank)
    else:
        model = models.BenchmarkTransformer()
        tokens = models.made_up_tokens(batch, size + 1, 50257, rank)
        data, target = tokens[:, :size], tokens[:, 1:]
    models.fill(model)
    return model, data, target.flatten()


class Trained:
    def __init__(self, model, data, target):
        self.model, self.data, self.target = model, data, target
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(self):
        loss = cross_entropy(self.model(self.data).flatten(0, -2), self.target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    kind, size, batch, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), dist.get_rank()
    plain = Trained(*make_subject(kind, size, batch, rank))
    model, data, target = make_subject(kind, size, batch, rank)
    averaged = Trained(DistributedDataParallel(model, gradient_as_bucket_view=True), data, target)
    for line in sys.stdin:
        way, steps = line.split()
        trained = averaged if way == "ddp" else plain
        if way != "single":
            dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(steps)):
            loss = trained.step()
            if way == "apart":
                dist.barrier()
        print(f"{time.perf_counter() - begin:.6f} {loss:.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
