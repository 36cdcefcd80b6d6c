#!/usr/bin/env python3
"""The time from the command to the first averaged gradient on every rank: lockstep run and torchrun, interleaved.

    PYTHON benchmarks/ddp_against_python/start_up.py build/release [--ranks 8] [--rounds 5] [--json FILE]

PYTHON is one with torch (tools/bootstrap where); build/release has bin/lockstep and benchmarks/first_gradient.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 300  # seconds for one job


def seconds_to_gradient(command, ranks):
    """The seconds of the slowest rank, and the norm, which is the same on all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        ended = subprocess.run([*command, folder], capture_output=True, text=True, timeout=LIMIT, cwd=folder,
                               env=os.environ | {"OMP_NUM_THREADS": "1"})
        if ended.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stderr}")
        found = [pathlib.Path(folder, str(rank)).read_text().split() for rank in range(ranks)]
    norms = {norm for _, norm in found}
    if len(norms) != 1:
        raise SystemExit(f"ranks do not have the same gradient: norms {sorted(norms)}")
    return max(float(clock) for clock, _ in found) - begin, float(norms.pop())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="write all times to this file")
    chosen = parser.parse_args()
    build, ranks = chosen.build.resolve(), str(chosen.ranks)
    rows = {
        "lockstep run": [build / "bin/lockstep", "run", "-n", ranks, build / "benchmarks/first_gradient"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks,
                     HERE / "first_gradient.py"],
    }
    load = os.getloadavg()[0]
    times, norms = {name: [] for name in rows}, {}
    for _ in range(chosen.rounds):
        for name, command in rows.items():
            seconds, norms[name] = seconds_to_gradient(command, chosen.ranks)
            times[name].append(seconds)
    if abs(norms["lockstep run"] - norms["torchrun"]) > 1e-4 * norms["torchrun"]:
        raise SystemExit(f"the two sides do not have the same gradient: norms {norms}")
    print(f"{ranks} ranks on {os.cpu_count()} cores, to the first averaged gradient; load before {load:.2f}")
    for name, found in times.items():
        print(f"  {name:14} {statistics.median(found):7.3f} s  (best {min(found):.3f}, {chosen.rounds} rounds)")
    ratio = statistics.median(b / a for a, b in zip(times["lockstep run"], times["torchrun"]))
    print(f"lockstep is {ratio:.1f} times as fast")
    if chosen.json:
        chosen.json.write_text(json.dumps({"ranks": chosen.ranks, "load_before": load, "seconds": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
