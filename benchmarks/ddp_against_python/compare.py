#!/usr/bin/env python3
"""The cost of Ddp, and a comparison with Python's DistributedDataParallel over Gloo: both run in turns.

    PYTHON benchmarks/ddp_against_python/compare.py build/release/benchmarks [options]

PYTHON is one with torch (tools/bootstrap where). A rank is one thread on one core; both sides train the same model on
the same data with the fused AdamW kernel, and their losses must agree. In each round every way runs once:

    single   one rank trains alone, the other cores are idle
    own      the same, as programs of lockstep do it: Ddp over one rank and lockstep's own AdamW
    apart    all ranks train without averaging gradients; one barrier per step
    ddp      all ranks train and average gradients: lockstep's Ddp, Python's with gradient_as_bucket_view

A ratio compares two runs of one round. The medians of the ratios are printed, with their quartiles in brackets.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from jobs import Job

HERE = pathlib.Path(__file__).resolve().parent
CASES = {
    "mlp-1024-32": ("mlp", 1024, 32),
    "mlp-1024-128": ("mlp", 1024, 128),
    "mlp-256-32": ("mlp", 256, 32),
    "transformer-64-2": ("transformer", 64, 2),
}
WARM_STEPS = 3
WARM = f"after {WARM_STEPS} steps"
WAYS = [("lockstep", "apart"), ("lockstep", "ddp"), ("python", "ddp"), ("lockstep", "single"), ("lockstep", "own"),
        ("python", "single")]
RATIOS = {  # name: numerator and denominator, in seconds per step
    "efficiency": (("lockstep", "apart"), ("lockstep", "ddp")),
    "T(K)/(K T(1))": (("lockstep", "single"), ("lockstep", "ddp")),
    "Python's": (("python", "single"), ("python", "ddp")),
    "times Python": (("python", "ddp"), ("lockstep", "ddp")),
    "one rank": (("python", "single"), ("lockstep", "own")),
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path, help="the folder that has ddp_step")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", default=",".join(CASES), help="some of the default, separated by commas")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="approximate length of a run")
    parser.add_argument("--only", choices=list(RATIOS), help="only this ratio: two runs per round, not six")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    chosen = parser.parse_args()
    chosen.cases = chosen.cases.split(",")
    chosen.ratios = [chosen.only] if chosen.only else list(RATIOS)
    unknown = [case for case in chosen.cases if case not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]}; expected some of {', '.join(CASES)}")
    return chosen


def expect_same_training(case, turns, when):
    # lockstep's own AdamW rounds in another order than the fused kernel, and rounding errors grow during training.
    for ours, theirs in (("ddp", "ddp"), ("own", "single")) if when == WARM else (("ddp", "ddp"),):
        losses = [turns[way][1] for way in (("lockstep", ours), ("python", theirs)) if way in turns]
        if len(losses) == 2 and not abs(losses[0] - losses[1]) <= 1e-5 * abs(losses[1]):
            raise SystemExit(f"{case}: {when} the losses are {losses} ({ours}): not the same training")


def measure(chosen, case):
    """Seconds per step in every round, by side and way."""
    arguments = [str(argument) for argument in CASES[case]]
    ratios = {name: RATIOS[name] for name in chosen.ratios}
    ways = [way for way in WAYS if any(way in ratio for ratio in ratios.values())]
    commands = {"lockstep": [chosen.binaries / "ddp_step", *arguments],
                "python": [sys.executable, HERE / "ddp_step.py", *arguments]}
    jobs = {side: Job(side, commands[side], chosen.ranks) for side in dict.fromkeys(side for side, _ in ways)}
    warm = {way: jobs[way[0]].turn(way[1], WARM_STEPS) for way in ways}
    expect_same_training(case, warm, WARM)
    steps = max(2, round(chosen.seconds / min(seconds for seconds, _ in warm.values())))
    times, last = {way: [] for way in ways}, {}
    for number in range(chosen.rounds):
        order = ways if number % 2 == 0 else ways[::-1]  # so that no way always follows the same other way
        for way in order:
            last[way] = jobs[way[0]].turn(way[1], steps)
            times[way].append(last[way][0])
    for job in jobs.values():
        job.end()
    if chosen.ranks <= 2:  # with more ranks Gloo sums in another order, and rounding errors grow
        expect_same_training(case, last, "after the last steps")
    return {"case": case, "ranks": chosen.ranks, "steps_per_turn": steps,
            "seconds_a_step": {f"{side} {way}": times[side, way] for side, way in ways},
            "ratios": {name: [a / b for a, b in zip(times[above], times[below])]
                       for name, (above, below) in ratios.items()}}


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.3f} [{low:.3f} {high:.3f}]"


def print_table(results):
    ways = list(results[0]["seconds_a_step"])
    print(f"{'case':18}" + "".join(f"{way + ', ms':>21}" for way in ways))
    for result in results:
        times = (statistics.median(result["seconds_a_step"][way]) * 1e3 for way in ways)
        print(f"{result['case']:18}" + "".join(f"{time:21.2f}" for time in times))
    print(f"\n{'case':18}" + "".join(f"{name:>24}" for name in results[0]["ratios"]))
    for result in results:
        print(f"{result['case']:18}" + "".join(f"{spread(ratio):>24}" for ratio in result["ratios"].values()))


def main():
    chosen = options()
    load = os.getloadavg()[0]
    print(f"{chosen.ranks} ranks on {os.cpu_count()} cores, one pinned thread each, {chosen.rounds} rounds; "
          f"load before {load:.2f}")
    results = [measure(chosen, case) for case in chosen.cases]
    print_table(results)
    if chosen.json:
        machine = {"cores": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0]}
        chosen.json.write_text(json.dumps({"machine": machine, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
