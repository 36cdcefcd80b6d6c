"""The training of ddp_training.cpp in Python, for ddp_parity.py, which calls these functions in processes.

train_rank    a rank of DistributedDataParallel over Gloo; writes FOLDER/<case>.<rank>.safetensors
train_whole   one process with the batches of all ranks in one, in fp32, or in fp64 from the same weights and data;
              writes FOLDER/<case>.safetensors. As a program, with OMP_NUM_THREADS threads:

    ddp_training.py FOLDER RANKS CASE…
"""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402

STEPS, BATCH, VOCABULARY, LENGTH = 20, 8, 60, 12


def make_model(name):
    if name == "integers":
        return models.Mlp([12, 16, 16, 4])
    if name == "mlp":
        return models.Mlp([3 * 8 * 8, 128, 128, 10])
    if name == "conv":
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    if name == "resnet":
        return models.ResNet18(width=4)
    if name == "transformer":
        return models.BenchmarkTransformer(VOCABULARY, 16, 32, 4, 48, 2)
    return models.Gpt(VOCABULARY, 16, 2, 4, 32)


def whole_numbers(shape, factor, begin, span):
    count = torch.arange(torch.Size(shape).numel())
    return ((count * factor + begin) % span - span // 2).float().view(shape)


def fill(name, net):
    if name != "integers":
        models.fill(net)
        return
    with torch.no_grad():
        for number, weight in enumerate(net.parameters()):
            weight.copy_(whole_numbers(weight.shape, 7, number, 5))


def loss_of(name, logits, target):
    if name == "integers":
        return (logits * target).sum() / logits.shape[0]
    return cross_entropy(logits.flatten(0, -2), target.flatten())


def make_batch(name, number):
    if name in ("transformer", "gpt"):
        tokens = models.made_up_tokens(BATCH, LENGTH + 1, VOCABULARY, number)
        return tokens[:, :LENGTH], tokens[:, 1:]
    if name == "integers":
        return whole_numbers((BATCH, 12), 5, number, 7), whole_numbers((BATCH, 4), 1, number, 3)
    side = {"mlp": 8, "conv": 16, "resnet": 16}[name]
    return models.made_up_numbers((BATCH, 3, side, side), number), models.made_up_classes(BATCH, 10, number)


def train(case, path, wrap, numbers_of, dtype):
    """`numbers_of(step)` are the batches that this process concatenates into one."""
    name, optimizer_name = case.split("-")
    net = make_model(name)
    fill(name, net)
    net.to(dtype)
    model = wrap(net)
    optimizer = (torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True) if optimizer_name == "adamw"
                 else torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9))
    found, losses = {}, []
    for step in range(STEPS):
        data, target = map(torch.cat, zip(*(make_batch(name, number) for number in numbers_of(step))))
        logits = model(data.to(dtype) if data.is_floating_point() else data)
        loss = loss_of(name, logits, target)
        loss.backward()
        losses.append(loss.item())
        if step in (0, STEPS - 1):
            kind = "last" if step else "first"
            found |= {f"{kind}.{key}": weight.grad.clone() for key, weight in net.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
    found |= {f"weight.{key}": weight.detach().clone() for key, weight in net.named_parameters()}
    found |= {f"buffer.{key}": value.to(dtype) for key, value in net.named_buffers()}
    save_file(found | {"losses": torch.tensor(losses)}, path)


def gradients_of(case, number):
    """The gradients of the untrained model for that batch."""
    name = case.split("-")[0]
    net = make_model(name)
    fill(name, net)
    data, target = make_batch(name, number)
    loss_of(name, net(data), target).backward()
    return {key: weight.grad for key, weight in net.named_parameters()}


def train_whole(folder, ranks, cases, dtype):
    for case in cases:
        train(case, f"{folder}/{case}.safetensors", lambda net: net,
              lambda step: range(step * ranks, (step + 1) * ranks), dtype)


def train_rank(folder, rank, ranks, cases):
    # A file store instead of a port, because another test may use any port.
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=ranks)
    for case in cases:
        train(case, f"{folder}/{case}.{rank}.safetensors", DistributedDataParallel,
              lambda step: [step * ranks + rank], torch.float32)
    dist.barrier()
    dist.destroy_process_group()


def main():
    folder, ranks, *cases = sys.argv[1:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    train_whole(folder, int(ranks), cases, torch.float32)


if __name__ == "__main__":
    main()
