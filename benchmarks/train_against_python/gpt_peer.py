"""A run of `lockstep train gpt`, done in Python: one rank of DistributedDataParallel over Gloo with fused AdamW.

    torchrun --nproc-per-node 2 gpt_peer.py RUN [options]

RUN is the folder of the run: its config.json states what is trained, and its tokens are read. Rank 0 prints one JSON
object per line with the fields of metrics.jsonl. With --batches same (the default) weights and batches are the run's own; with
random they are drawn as nanoGPT draws them: torch's own generator, windows anywhere in the text.
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "models")]
import in_python as models  # noqa: E402
import same_start  # noqa: E402
from run_settings import RunSettings  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16 keeps attention in fp32")
    parser.add_argument("--threads", type=int, default=1, help="per rank; a rank is pinned to its own cores")
    parser.add_argument("--batches", choices=("same", "random"), default="same")
    parser.add_argument("--seed", type=int, help="instead of the seed of the run")
    return parser.parse_args()


class Exact(torch.nn.Module):
    """The model under autocast, except attention, which LibTorch's CPU kernel computes slowly in 16 bits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(tokens)


def attend_in_float(parts, heads, causal):
    batch, length, width = parts[0].shape
    query, key, value = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
    with torch.autocast("cpu", enabled=False):
        mixed = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), is_causal=causal)
    return mixed.to(query.dtype).transpose(1, 2).reshape(batch, length, width)


def make_model(settings, chosen, seed):
    shape = settings.shape()
    if chosen.batches == "same":
        same_start.seed_generator(seed)
    else:
        torch.manual_seed(seed)
    model = models.Gpt(**shape)
    same_start.initialise(model, shape["layers"])
    if chosen.precision == "bf16":
        models.attend = attend_in_float
        model = Exact(model)
    return model


def windows(tokens, starts, length):
    both = torch.from_numpy(numpy.stack([tokens[start:start + length + 1] for start in starts]).astype(numpy.int64))
    return both[:, :-1], both[:, 1:]


def batches(settings, chosen, seed, tokens, rank, world):
    """This rank's batch of every step."""
    length, batch = settings.whole("context"), settings.whole("batch")
    if chosen.batches == "random":
        generator = torch.Generator().manual_seed(seed * 1000 + rank)
        while True:
            starts = torch.randint(len(tokens) - length, (batch,), generator=generator).tolist()
            yield windows(tokens, starts, length)
    for samples in same_start.samples((len(tokens) - 1) // length, seed, batch * world):
        yield windows(tokens, samples[rank * batch:(rank + 1) * batch] * length, length)


def lr_at(settings, step):
    warmup, total, min_lr_ratio = settings.steps("warmup"), settings.steps("steps"), settings.number("min-lr-ratio")
    highest = settings.number("lr")
    if step < warmup:
        return highest * (step + 1) / warmup
    if settings.texts["schedule"] == "constant":
        return highest
    if settings.texts["schedule"] != "cosine":
        raise SystemExit(f"--schedule is {settings.texts['schedule']}; the peer has cosine and constant")
    part = (step - warmup) / (total - warmup)
    return highest * (min_lr_ratio + (1 - min_lr_ratio) * (1 + math.cos(math.pi * part)) / 2)


def make_optimizer(settings, model):
    weights = list(model.parameters())
    groups = [{"params": [w for w in weights if w.dim() >= 2], "weight_decay": settings.number("weight-decay")},
              {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, settings.number("beta2")), fused=True)


def loss_of(model, data, target):
    return F.cross_entropy(model(data).flatten(0, 1), target.flatten())


@torch.no_grad()
def evaluate(model, settings, tokens, rank, world):
    """The mean loss over all windows of the validation text."""
    length, batch = settings.whole("context"), settings.whole("batch")
    count = (len(tokens) - 1) // length
    sums = torch.zeros(2, dtype=torch.float64)
    for first in range(rank * batch, count, world * batch):
        data, target = windows(tokens, [i * length for i in range(first, min(first + batch, count))], length)
        sums += torch.tensor([loss_of(model, data, target).item() * len(data), len(data)], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def say(rank, **row):
    if rank == 0:
        print(json.dumps(row), flush=True)


def train(settings, chosen, rank, world):
    seed = settings.whole("seed") if chosen.seed is None else chosen.seed
    training, validation = settings.tokens()
    plain = make_model(settings, chosen, seed)
    model = DistributedDataParallel(plain, gradient_as_bucket_view=True)
    optimizer = make_optimizer(settings, model)
    source = batches(settings, chosen, seed, training, rank, world)
    total, log_every, clip = settings.steps("steps"), settings.steps("log-every"), settings.number("max-grad-norm")
    tokens_per_step = settings.whole("batch") * settings.whole("context") * world
    losses, spent = [], 0.0
    for step in range(total):
        begin = time.perf_counter()
        data, target = next(source)
        loss = loss_of(model, data, target)
        loss.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = lr_at(settings, step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        spent += time.perf_counter() - begin
        if (step + 1) % log_every == 0 or step == 0:
            mean, slowest = torch.stack(losses).double().mean(), torch.tensor(spent)
            dist.all_reduce(mean)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            say(rank, kind="train", step=step + 1, loss=mean.item() / world, lr=lr_at(settings, step),
                tokens_per_second=tokens_per_step * len(losses) / slowest.item())
            losses, spent = [], 0.0
    if len(validation) > settings.whole("context"):
        exact = plain.model if chosen.precision == "bf16" else plain  # as the trainer evaluates: in fp32
        say(rank, kind="eval", step=total, loss=evaluate(exact, settings, validation, rank, world))


def main():
    chosen = options()
    torch.set_num_threads(chosen.threads)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // world
    if share >= chosen.threads:
        os.sched_setaffinity(0, cores[rank * share:(rank + 1) * share])
    settings = RunSettings(chosen.run)
    if settings.whole("grad-accum") != 1 or settings.whole("global-batch") not in (0, settings.whole("batch") * world):
        raise SystemExit("the peer supports one batch per step: use --grad-accum 1 and no --global-batch")
    train(settings, chosen, rank, world)
    dist.barrier()
    # The destruction of the process group and the reducer sometimes ends with "terminate called without an active
    # exception" in one of their threads, after all results are printed.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
