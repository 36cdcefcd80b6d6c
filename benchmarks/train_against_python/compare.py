#!/usr/bin/env python3
"""Speed and loss of `lockstep train gpt` against Python's DistributedDataParallel over Gloo, run in turns.

    PYTHON benchmarks/train_against_python/compare.py build/release/bin/lockstep [options]

PYTHON is one with torch (tools/bootstrap where). A rank has --threads threads and as many cores, the same ones on both
sides: virtual machines may hide which logical processors share a core. Both sides train GPT-tiny (4 layers,
width 128, 4 heads, 128 tokens, 8 windows per rank) from the same weights on the same batches of the same token file, with
the same learning rates; Python with gradient_as_bucket_view and fused AdamW. In each round every side runs once, in
alternating order. Tokens per second are the median over the intervals of a run without the first two; the median over the
rounds is printed.

Losses are compared step by step: the mean difference between lockstep and Python may be twice that between two runs of
Python that differ only in the number of threads. With --kernels libtorch every operator is the one that Python calls;
with lockstep's own kernels the last bits differ, and rounding errors grow with the number of steps.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile

import sides

WAYS = [("lockstep", "fp32"), ("python", "fp32"), ("lockstep", "bf16"), ("python", "bf16")]
INTERVAL = 10  # steps


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=pathlib.Path, help="the command")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="per rank, one core per thread")
    parser.add_argument("--peer-threads", type=int, help="per rank of Python, if different; torchrun's default is 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="per run")
    parser.add_argument("--curve-steps", type=int, default=500, help="length of the loss curves; 0: measure speed only")
    parser.add_argument("--data", default="shakespeare", help="text, as lockstep train takes it")
    parser.add_argument("--kernels", choices=("own", "libtorch"), default="own", help="of lockstep's GPT")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    chosen = parser.parse_args()
    chosen.peer_threads = chosen.peer_threads or chosen.threads
    return chosen


def settings(chosen, precision, steps, interval):
    """No evaluation and only the last checkpoint: the measured time has only steps."""
    return {"size": "tiny", "batch": 8, "ranks": chosen.ranks, "data": chosen.data, "steps": steps,
            "log-every": f"{interval}st", "save-every": f"{steps}st", "sample-tokens": 0, "val-fraction": 0,
            "precision": precision, "kernels": chosen.kernels}


class Turns:
    def __init__(self, chosen, folder):
        self.chosen, self.folder, self.number = chosen, folder, 0
        self.last = {}  # the last run of each precision and interval: what the peer reads

    def run(self, side, precision, steps, interval=INTERVAL, **more):
        if side == "lockstep":
            self.number += 1
            place = self.folder / f"run-{self.number}"
            rows, _ = sides.lockstep(self.chosen.lockstep, place, settings(self.chosen, precision, steps, interval))
            self.last[precision, interval] = place
        else:
            place = self.last[precision, interval]
            rows, _ = sides.python(place, self.chosen.ranks, "--precision", precision,
                                   **{"threads": self.chosen.peer_threads} | more)
        return rows


def tokens_per_second(rows):
    return statistics.median([row["tokens_per_second"] for row in rows.values()][2:])


def measure_speed(chosen, turns):
    ways = [way for way in WAYS if way[1] in chosen.precisions.split(",")]
    speeds = {way: [] for way in ways}
    for way in ways:  # warm: files are in memory, and the peer has a run to read
        turns.run(*way, chosen.steps)
    for number in range(chosen.rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            speeds[way].append(tokens_per_second(turns.run(*way, chosen.steps)))
    return speeds


def difference(ours, theirs):
    if ours.keys() != theirs.keys():
        raise SystemExit(f"the runs logged different steps: {len(ours)} and {len(theirs)}")
    apart = [abs(ours[step]["loss"] - theirs[step]["loss"]) for step in ours]
    return {"mean": statistics.mean(apart), "largest": max(apart), "first": apart[0]}


def measure_losses(turns, steps):
    """Loss of every step in fp32: lockstep, Python, and Python with another number of threads. Until rounding has grown
    into the training, some hundred steps, the losses differ in their last bits, if at all."""
    ours, theirs = turns.run("lockstep", "fp32", steps, 1), turns.run("python", "fp32", steps, 1)
    threads = turns.run("python", "fp32", steps, 1, threads=turns.chosen.peer_threads + 1)
    return {"lockstep against python": difference(ours, theirs), "python against itself": difference(theirs, threads),
            "last loss": {"lockstep": ours[max(ours)]["loss"], "python": theirs[max(theirs)]["loss"]}}


def print_speed(speeds):
    middle = {way: statistics.median(values) for way, values in speeds.items()}
    print(f"{'tokens/s':10}" + "".join(f"{' '.join(way):>22}" for way in speeds))
    print(f"{'median':10}" + "".join(f"{middle[way]:22.0f}" for way in speeds))
    print(f"{'range':10}" + "".join(f"{f'{min(v):.0f} to {max(v):.0f}':>22}" for v in speeds.values()))
    ratios = {}
    if ("lockstep", "fp32") in middle:
        ratios["fp32"] = [a / b for a, b in zip(speeds["lockstep", "fp32"], speeds["python", "fp32"])]
    if ("lockstep", "bf16") in middle:
        peers = [speeds[way] for way in speeds if way[0] == "python"]
        better = max(peers, key=statistics.median)
        ratios["bf16 to the better of the peer's"] = [a / b for a, b in zip(speeds["lockstep", "bf16"], better)]
    for name, values in ratios.items():
        print(f"{name}: {statistics.median(values):.3f} times Python ({min(values):.3f} to {max(values):.3f})")
    return ratios


def main():
    chosen = options()
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:chosen.ranks * chosen.threads])
    print(f"{chosen.ranks} ranks on {os.cpu_count()} cores, threads per rank: {chosen.threads}, Python's "
          f"{chosen.peer_threads}; {chosen.rounds} rounds of {chosen.steps} steps; load before "
          f"{os.getloadavg()[0]:.2f}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        turns = Turns(chosen, pathlib.Path(name))
        speeds = measure_speed(chosen, turns)
        ratios = print_speed(speeds)
        losses = measure_losses(turns, chosen.curve_steps) if chosen.curve_steps else {}
    for pair in list(losses)[:2]:
        print(f"loss, {pair}: {losses[pair]['mean']:.3g} apart in the mean, {losses[pair]['largest']:.3g} at most, "
              f"{losses[pair]['first']:.3g} at the first step")
    if losses:
        ours, theirs = losses["lockstep against python"]["mean"], losses["python against itself"]["mean"]
        print(f"loss: lockstep is {ours / theirs:.2f} times as far from Python as Python is from itself")
    if chosen.json:
        chosen.json.write_text(json.dumps({
            "cores": os.cpu_count(), "ranks": chosen.ranks, "threads": chosen.threads,
            "peer_threads": chosen.peer_threads, "kernels": chosen.kernels, "steps": chosen.steps,
            "curve_steps": chosen.curve_steps,
            "tokens_per_second": {" ".join(way): values for way, values in speeds.items()},
            "ratios": ratios, "losses": losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
