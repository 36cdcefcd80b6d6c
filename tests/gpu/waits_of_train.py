#!/usr/bin/env python3
"""`lockstep train` on a GPU waits for the device only where it logs: a run of twice as many steps, with the same number of
logs, waits equally often.

    waits_of_train.py LOCKSTEP COUNTER      COUNTER: the library of count_waits.h
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def waits(lockstep, counter, folder, steps, more):
    """The counts of all processes of a run."""
    folder.mkdir()
    library = folder / "count_waits.so"
    shutil.copy(counter, library)
    text = folder / "words.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 20_000)
    command = [lockstep, "train", "gpt", "--data", text, "--run", folder / "run", "--device", "cuda", "--steps", steps,
               "--layers", 2, "--width", 64, "--heads", 2, "--context", 64, "--batch", 8, "--val-fraction", 0,
               "--log-every", steps, "--save-every", steps, "--sample-tokens", 0, *more]
    done = subprocess.run(["env", f"LD_PRELOAD={library}", *map(str, command)], text=True, capture_output=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    counts = [[int(word) for word in path.read_text().split()] for path in folder.glob("count_waits.so.*")]
    if not counts:
        raise SystemExit("no process counted a wait: the counter was not loaded")
    return [sum(column) for column in zip(*counts)]


def main():
    lockstep, counter = sys.argv[1:]
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
        print("SKIPPED: no GPU on this machine")
        sys.exit(77)
    for more in (["--precision", "bf16"], ["--precision", "fp16"], ["--precision", "bf16", "--cuda-graph"]):
        with tempfile.TemporaryDirectory(prefix="lockstep-waits-") as name:
            folder = pathlib.Path(name)
            shorter = waits(lockstep, counter, folder / "a", 40, more)
            longer = waits(lockstep, counter, folder / "b", 80, more)
        print(f"{' '.join(more):<32} synchronizations, copies, frees: {shorter} in 40 steps, {longer} in 80")
        if shorter != longer:
            raise SystemExit("a step waits for the device")


if __name__ == "__main__":
    main()
