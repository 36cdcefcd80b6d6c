#!/usr/bin/env python3
"""What Ddp over NCCL adds to a step on one GPU with one rank: lockstep, and PyTorch's DistributedDataParallel.

    PYTHON benchmarks/gpu_against_python/ddp_overhead.py BUILD_FOLDER [--rounds 2]

Both sides train the same GPT with bf16 autocast and AdamW (Python: fused), once with and once without averaging, in turns
of ten steps. Neither side skips the reduction because there is only one rank. The sides run one after the other, the
medians of the rounds count. In the case "graph" each step of lockstep is a CUDA graph, with and without averaging; the
overhead is compared with that of Python's DistributedDataParallel on the same model, which has no graph.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "models")]
# layers, heads, width, context, batch, vocabulary, steps; more arguments of lockstep's side; the bar
CASES = {
    "124 M": ((12, 12, 768, 1024, 32, 50304, 40), [], 0.7),
    "10.8 M": ((6, 6, 384, 256, 4, 256, 200), [], 5.0),
    "10.8 M graph": ((6, 6, 384, 256, 4, 256, 400), ["graph"], 5.0),
}
STEPS_PER_TURN, WARM_UP_TURNS = 10, 2


def peer(layers, heads, width, context, batch, vocabulary, steps):
    import in_python
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871", "RANK": "0", "WORLD_SIZE": "1"}
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    tokens = torch.randint(vocabulary, (batch, context + 1), device="cuda")

    def made(with_ddp):
        model = in_python.Gpt(layers=layers, heads=heads, width=width, context=context, vocabulary=vocabulary).cuda()
        if with_ddp:
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        return model, torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)

    def turn(model, optimizer):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS_PER_TURN):
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / STEPS_PER_TURN

    sides = made(False), made(True)
    times = [[turn(*side) for side in sides] for _ in range(WARM_UP_TURNS + steps // STEPS_PER_TURN)][WARM_UP_TURNS:]
    plain, ddp = (statistics.median(column) for column in zip(*times))
    dist.destroy_process_group()
    print(json.dumps({"plain_ms": plain, "ddp_ms": ddp}))


def run(command):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, timeout=600)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peer", nargs=7, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.peer:
        return peer(*chosen.peer)
    of_python = {}  # by the shape of the model
    for name, (shape, more, bar) in CASES.items():
        ours, theirs = [], of_python.setdefault(shape[:-1], [])
        is_measured = len(theirs) > 0
        for _ in range(chosen.rounds):
            ours.append(run([chosen.build / "benchmarks/device_ddp_benchmark", *shape, *more]))
            if not is_measured:
                theirs.append(run([sys.executable, __file__, chosen.build, "--peer", *shape]))
        overhead = {}
        for side, rows in (("lockstep", ours), ("Python", theirs)):
            overhead[side] = 100 * (statistics.median(row["ddp_ms"] / row["plain_ms"] for row in rows) - 1)
            plain, ddp = (statistics.median(row[key] for row in rows) for key in ("plain_ms", "ddp_ms"))
            print(f"{name:12} {side:9} {plain:8.3f} ms per step, with Ddp {ddp:8.3f} ms: {overhead[side]:+.2f} %")
        met = overhead["lockstep"] <= bar and overhead["lockstep"] < overhead["Python"]
        print(f"bar: Ddp over NCCL, one rank, {name} | {overhead['lockstep']:+.2f} %, Python {overhead['Python']:+.2f} % | "
              f"<= {bar} % and below Python | {'met' if met else 'MISSED'}", flush=True)


if __name__ == "__main__":
    main()
