"""Starts one training run on either side and returns its rows: step, loss, tokens per second."""

import json
import os
import pathlib
import subprocess
import sys

from run_settings import metrics

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 3600  # time limit of one run, in seconds


def finished(command, **more):
    """The standard output of a command. Its messages go to standard error; a failure ends the comparison."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=LIMIT, **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(str(word) for word in command)}\nended with code {done.returncode}; its messages "
                         "are above")
    return done.stdout


def lockstep(command, folder, settings):
    """Trains a new run in `folder` with `lockstep train gpt`. Returns its rows for training and for evaluation."""
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    finished([command, "train", "gpt", "--run", folder, *flags], stderr=subprocess.DEVNULL)
    return metrics(folder, "train"), metrics(folder, "eval")


def python(folder, ranks, *flags, threads=1):
    """Trains the peer with the settings, tokens and ranks of the run in `folder`."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    printed = finished([*launcher, HERE / "gpt_peer.py", folder, "--threads", threads, *flags],
                       env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    rows = [json.loads(line) for line in printed.splitlines()]
    return ({row["step"]: row for row in rows if row["kind"] == "train"},
            {row["step"]: row for row in rows if row["kind"] == "eval"})
