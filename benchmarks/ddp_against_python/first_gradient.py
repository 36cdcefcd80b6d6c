"""A rank of a minimal training in Python: from the start of the process to the first averaged gradient.

    first_gradient.py FOLDER        started by start_up.py under torchrun

Writes the time at which the gradient is complete, and its norm, to FOLDER/<rank>.
"""

import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402

dist.init_process_group("gloo")
rank = dist.get_rank()
net = models.Mlp([32, 32, 10])
models.fill(net)
model = DistributedDataParallel(net)
loss = torch.nn.functional.cross_entropy(model(models.made_up_numbers((8, 32), rank)), models.made_up_classes(8, 10, rank))
loss.backward()
clock = time.monotonic()
norm = net.layers[0].weight.grad.norm().item()
pathlib.Path(sys.argv[1], str(rank)).write_text(f"{clock:.6f} {norm:.6f}\n")
dist.barrier()
dist.destroy_process_group()
