#!/usr/bin/env python3
"""The step of a sharded optimizer beside plain Ddp, forward and backward alone, and Python over Gloo: all run in turns.

    PYTHON benchmarks/sharding_against_python/compare.py build/release/benchmarks [options]

PYTHON is one with torch (tools/bootstrap where). A rank is one thread on one core; all ways train the same model on the
same data with AdamW. In each round every way runs once:

    lockstep floor       forward and backward alone, on all ranks
    lockstep ddp         plain Ddp and lockstep's AdamW
    lockstep optimizer   the same with Shard::optimizer; the loss must be bit-identical
    lockstep per_host    the same with Copies::per_host too; likewise
    lockstep gradients   per_host with Shard::gradients; likewise
    python ddp           DistributedDataParallel, gradient_as_bucket_view, fused AdamW
    python zero          the same with ZeroRedundancyOptimizer

A ratio compares two runs of one round. The medians of the ratios are printed, with their quartiles in brackets. A case
is MODEL-SIZE-BATCH@RANKS; a bar belongs to a case with its number of ranks, on a machine with as many cores.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "ddp_against_python"))
from compare import spread  # noqa: E402
from jobs import Job  # noqa: E402

MODELS = {
    "mlp-1024-8": ("mlp", 1024, 8),
    "mlp-1024-32": ("mlp", 1024, 32),
    "transformer-64-2": ("transformer", 64, 2),
}
WARM_STEPS = 3
FLOOR, DDP, PYTHON, ZERO = ("lockstep", "floor"), ("lockstep", "ddp"), ("python", "ddp"), ("python", "zero")
SHARDED = [("lockstep", "optimizer"), ("lockstep", "per_host"), ("lockstep", "gradients")]
WAYS = [FLOOR, DDP, *SHARDED, PYTHON, ZERO]


def ratios_of(way):
    """Name: numerator and denominator, in seconds per step."""
    name = way[1]
    return {f"{name}, times Ddp": (DDP, way), f"{name}, floor/step": (FLOOR, way),
            f"{name}, times Python": (PYTHON, way), f"{name}, times ZeRO": (ZERO, way)}


RATIOS = {"Ddp, floor/step": (FLOOR, DDP), "Ddp, times Python": (PYTHON, DDP)}
for each in SHARDED:
    RATIOS |= ratios_of(each)

# By case: alternatives, of which one must hold; each is a ratio and the least value.
BARS = {
    "mlp-1024-8@16": [[("times Python", 3.0)]],
    "mlp-1024-32@16": [[("floor/step", 0.85)]],
    "transformer-64-2@8": [[("times Ddp", 1.12), ("floor/step", 0.9)], [("times Python", 1.55)]],
    "mlp-1024-32@2": [[("times Ddp", 1.06)]],
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path, help="the folder that has sharding_step")
    many = len(os.sched_getaffinity(0)) >= 16
    parser.add_argument("--cases", default="mlp-1024-8@16,mlp-1024-32@16,transformer-64-2@8" if many
                        else "mlp-1024-8@2,mlp-1024-32@2",
                        help="separated by commas; the default fits this machine: %(default)s")
    parser.add_argument("--rounds", type=int, default=5 if many else 7)
    parser.add_argument("--seconds", type=float, default=0.5, help="approximate length of a run")
    parser.add_argument("--without-python", action="store_true", help="only lockstep's ways")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    chosen = parser.parse_args()
    chosen.cases = chosen.cases.split(",")
    for case in chosen.cases:
        model, _, ranks = case.partition("@")
        if model not in MODELS or not ranks.isdigit() or ranks == "0":
            parser.error(f"unknown case {case}; expected one of {', '.join(MODELS)}, then @ and the number of ranks")
    return chosen


def expect_same_training(case, turns):
    """Of the same number of steps: shards change no bit. Python's kernel rounds in another order."""
    for way in SHARDED:
        if turns[way][1] != turns[DDP][1]:
            raise SystemExit(f"{case}: the loss with {way[1]} is {turns[way][1]}, with plain Ddp {turns[DDP][1]}")
    for way in (PYTHON, ZERO):
        if way in turns and not abs(turns[way][1] - turns[DDP][1]) <= 1e-4 * abs(turns[DDP][1]):
            raise SystemExit(f"{case}: the loss of {way} is {turns[way][1]}, of lockstep {turns[DDP][1]}: not the same "
                             "training")


def measure(chosen, case):
    """Seconds per step in every round, by way."""
    model, _, ranks = case.partition("@")
    arguments = [str(argument) for argument in MODELS[model]]
    commands = {"lockstep": [chosen.binaries / "sharding_step", *arguments],
                "python": [sys.executable, HERE / "sharding_step.py", *arguments]}
    ways = [way for way in WAYS if way[0] == "lockstep" or not chosen.without_python]
    jobs = {side: Job(side, commands[side], int(ranks)) for side in dict.fromkeys(side for side, _ in ways)}
    warm = {way: jobs[way[0]].turn(way[1], WARM_STEPS) for way in ways}
    expect_same_training(case, warm)
    steps = max(2, round(chosen.seconds / min(warm[way][0] for way in ways)))
    times, last = {way: [] for way in ways}, {}
    for number in range(chosen.rounds):
        order = ways if number % 2 == 0 else ways[::-1]  # so that no way always follows the same other way
        for way in order:
            last[way] = jobs[way[0]].turn(way[1], steps)
            times[way].append(last[way][0])
    for job in jobs.values():
        job.end()
    expect_same_training(case, {way: last[way] for way in ways if way[0] == "lockstep"})
    return {"case": case, "steps_per_turn": steps, "seconds_a_step": {" ".join(way): times[way] for way in ways},
            "ratios": {name: [a / b for a, b in zip(times[above], times[below])]
                       for name, (above, below) in RATIOS.items() if above in times and below in times}}


def print_result(result):
    print(f"{result['case']}, {result['steps_per_turn']} steps per run")
    for way, seconds in result["seconds_a_step"].items():
        print(f"  {way:28}{statistics.median(seconds) * 1e3:10.2f} ms per step")
    for name, ratios in result["ratios"].items():
        print(f"  {name:28}{spread(ratios):>24}")
    sys.stdout.flush()


def print_bars(results):
    for result in results:
        for alternatives in BARS.get(result["case"], []):
            for _, way in SHARDED:
                found = [(name, statistics.median(result["ratios"][f"{way}, {name}"]), least)
                         for name, least in alternatives if f"{way}, {name}" in result["ratios"]]
                if not found:
                    continue
                is_met = any(value >= least for _, value, least in found)
                print(f"bar: {result['case']}, {way} | " + ", ".join(f"{name} {value:.3f}" for name, value, _ in found) +
                      " | " + " or ".join(f">= {least}" for _, _, least in found) + f" | {'met' if is_met else 'MISSED'}")


def main():
    chosen = options()
    load = os.getloadavg()[0]
    print(f"{len(os.sched_getaffinity(0))} cores, one pinned thread per rank, {chosen.rounds} rounds; load before {load:.2f}",
          flush=True)
    results = []
    for case in chosen.cases:
        results.append(measure(chosen, case))
        print_result(results[-1])
    print_bars(results)
    if chosen.json:
        machine = {"cores": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0]}
        chosen.json.write_text(json.dumps({"machine": machine, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
