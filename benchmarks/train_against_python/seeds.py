#!/usr/bin/env python3
"""The validation loss of a GPT on Shakespeare's bytes: `lockstep train gpt` compared with nanoGPT's method in Python.

    PYTHON benchmarks/train_against_python/seeds.py build/release/bin/lockstep [options]

PYTHON is one with torch (tools/bootstrap where). Every seed is trained once on each side with the same settings: model,
batch, learning rates, decay, clipping, steps. Python draws its weights from torch's generator and its windows anywhere in
the text, as nanoGPT does; lockstep draws both with its own methods. The loss is the mean over all windows of the same
validation text. The means over the seeds may differ by at most the spread of Python's losses over the seeds.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

import sides


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=pathlib.Path, help="the command")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--data", default="shakespeare", help="text, as lockstep train takes it")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    return parser.parse_args()


def main():
    chosen = options()
    losses = {"lockstep": [], "python": []}
    with tempfile.TemporaryDirectory() as name:
        for seed in map(int, chosen.seeds.split(",")):
            folder = pathlib.Path(name) / f"seed-{seed}"
            settings = {"size": "tiny", "ranks": chosen.ranks, "data": chosen.data, "steps": chosen.steps,
                        "eval-every": f"{chosen.steps}st", "eval-batches": 0, "sample-tokens": 0,
                        "save-every": f"{chosen.steps}st", "log-every": "50st", "seed": seed}
            _, ours = sides.lockstep(chosen.lockstep, folder, settings)
            _, theirs = sides.python(folder, chosen.ranks, "--batches", "random")
            losses["lockstep"].append(ours[chosen.steps]["loss"])
            losses["python"].append(theirs[chosen.steps]["loss"])
            print(f"seed {seed}: validation loss {losses['lockstep'][-1]:.4f}, Python's {losses['python'][-1]:.4f}", flush=True)
    means = {side: statistics.mean(values) for side, values in losses.items()}
    spread = max(losses["python"]) - min(losses["python"])
    print(f"means after {chosen.steps} steps: {means['lockstep']:.4f}, Python's {means['python']:.4f}; "
          f"apart by {means['lockstep'] - means['python']:+.4f}, Python's seeds by {spread:.4f}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"steps": chosen.steps, "losses": losses, "means": means,
                                           "python_spread": spread}, indent=1) + "\n")


if __name__ == "__main__":
    main()
