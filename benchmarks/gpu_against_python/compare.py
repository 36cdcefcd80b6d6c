#!/usr/bin/env python3
"""Speed of `lockstep train gpt` on one GPU against PyTorch, run in turns.

    PYTHON benchmarks/gpu_against_python/compare.py build/release/bin/lockstep [options]

PYTHON is one with torch (tools/bootstrap where). All sides train the same GPT (models/in_python.py is the peer) with bf16
autocast, AdamW (Python: fused) and clipping. lockstep reads a text with its loader and writes its metrics; Python has its
batches in pinned memory. Tokens per second are the median over the intervals of a run without the first two; each side runs
once per round. Sides: lockstep, with --cuda-graph too for the small model; Python eager, and torch.compile (for the small
model with mode reduce-overhead). The vocabulary of the large model is padded to 50304 on all sides; that of the small one
is 256.
"""

import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "models"), str(HERE.parent / "train_against_python")]
CASES = {
    "124 M, T 1024, B 32": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "batch": 32, "vocabulary": 50304},
    "124 M, T 1024, B 64": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "batch": 64, "vocabulary": 50304},
    "10.8 M, T 256, B 4": {"layers": 6, "heads": 6, "width": 384, "context": 256, "batch": 4, "vocabulary": 256},
}


def sides_of(case):
    """By name: the options of lockstep, or the way of the peer."""
    if case["width"] == 768:
        return {"lockstep": [], "eager": "eager", "compile": "default"}
    return {"lockstep": [], "lockstep graph": ["--cuda-graph"], "eager": "eager", "reduce-overhead": "reduce-overhead"}


INTERVAL = 20  # steps


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=pathlib.Path, help="the command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120, help="per run")
    parser.add_argument("--case", action="append", help="part of the name of a case; all without it")
    parser.add_argument("--peer", nargs=2, metavar=("CASE", "WAY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def lockstep(chosen, case, folder, text, options_of_side):
    import run_settings
    flags = [word for name, value in case.items() for word in (f"--{name}", str(value))]
    more = ["--data", text, "--run", folder, "--device", "cuda", "--precision", "bf16", "--steps", chosen.steps,
            "--log-every", INTERVAL, "--save-every", chosen.steps, "--val-fraction", 0, "--sample-tokens", 0, "--lr", "6e-4",
            *options_of_side]
    done = subprocess.run([str(word) for word in [chosen.lockstep, "train", "gpt", *flags, *more]], text=True,
                          capture_output=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    rows = run_settings.metrics(folder, "train")
    return statistics.median([row["tokens_per_second"] for row in rows.values()][2:])


def peer(chosen, case, way):
    """Runs in a process of its own, so that the two sides do not share the GPU."""
    import in_python
    import torch
    import torch.nn.functional as F
    torch.manual_seed(1)
    device = "cuda"
    model = in_python.Gpt(layers=case["layers"], heads=case["heads"], width=case["width"], context=case["context"],
                          vocabulary=case["vocabulary"]).to(device)
    if way != "eager":
        model = torch.compile(model, mode=way)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                                  lr=6e-4, betas=(0.9, 0.99), fused=True)
    batches = [torch.randint(case["vocabulary"], (case["batch"], case["context"] + 1)).pin_memory() for _ in range(8)]
    speeds, begin = [], time.perf_counter()
    for step in range(1, chosen.steps + 1):
        tokens = batches[step % len(batches)].to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % INTERVAL == 0:
            loss.item()
            now = time.perf_counter()
            speeds.append(INTERVAL * case["batch"] * case["context"] / (now - begin))
            begin = now
    print(statistics.median(speeds[2:]))


def print_bars(name, case, speeds):
    """The last lines of a case, for tools/gpu_check."""
    def ratio(ours, other):
        return statistics.median(a / b for a, b in zip(speeds[ours], speeds[other]))

    def bar(measure, value, limit, met):
        print(f"bar: {name}: {measure} | {value} | {limit} | {'printed' if met is None else 'met' if met else 'MISSED'}",
              flush=True)

    if "compile" in speeds:
        bar("against eager", f"{ratio('lockstep', 'eager'):.2f}", ">= 1.0", ratio("lockstep", "eager") >= 1)
        bar("against torch.compile", f"{ratio('lockstep', 'compile'):.2f}", "printed", None)
        return
    step = 1e3 * case["batch"] * case["context"] / statistics.median(speeds["lockstep graph"])
    bar("graph, step", f"{step:.2f} ms", "<= 1.75 ms", step <= 1.75)
    for other, least in (("reduce-overhead", 1.5), ("eager", 4)):
        reached = ratio("lockstep graph", other)
        bar(f"graph, against {other}", f"{reached:.2f}", f">= {least}", reached >= least)


def main():
    chosen = options()
    if chosen.peer:
        name, way = chosen.peer
        peer(chosen, CASES[name], way)
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as folder:
        draw = random.Random(1)
        text = pathlib.Path(folder) / "words.txt"
        words = "the of and to in a is that for it was on are as with his they at be this from have".split()
        text.write_text("\n".join(" ".join(draw.choice(words) for _ in range(12)) for _ in range(150_000)))
        print(f"{'':<42}{'tok/s':>10}{'ms/step':>9}   median of {chosen.rounds} rounds; ratio to lockstep's first side")
        for name, case in CASES.items():
            if chosen.case and not any(part in name for part in chosen.case):
                continue
            speeds = {side: [] for side in sides_of(case)}
            for number in range(chosen.rounds):
                for side, way in sides_of(case).items():
                    if isinstance(way, list):
                        run = f"{folder}/{case['width']}-{case['batch']}-{number}-{side.replace(' ', '-')}"
                        speeds[side].append(lockstep(chosen, case, run, text, way))
                        continue
                    done = subprocess.run([sys.executable, __file__, str(chosen.lockstep), "--steps", str(chosen.steps),
                                           "--peer", name, way], text=True, stdout=subprocess.PIPE, check=True, timeout=600)
                    speeds[side].append(float(done.stdout.split()[-1]))
            for side, each in speeds.items():
                ratios = [ours / other for ours, other in zip(speeds["lockstep"], each)]
                speed = statistics.median(each)
                print(f"{name + ', ' + side:<42}{speed:10.0f}{1e3 * case['batch'] * case['context'] / speed:9.2f}"
                      f"{statistics.median(ratios):8.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
            print_bars(name, case, speeds)


if __name__ == "__main__":
    main()
