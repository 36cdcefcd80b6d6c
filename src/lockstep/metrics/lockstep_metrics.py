"""Reads the metrics of a lockstep run (metrics.jsonl). One file, standard library only: copy it where you need it.

    import lockstep_metrics

    run = lockstep_metrics.read("runs/gpt")            # the folder, or the file itself
    run.train[-1]["loss"]                              # rows are dictionaries
    [row["late_ms"] for row in run.ranks if row["rank"] == 1]
    [event for event in run.events if event["event"] == "save"]

    frames = lockstep_metrics.read("runs/gpt", frames=True)   # pandas data frames instead of lists
    frames.train.plot("step", "loss")

The rows of docs/metrics.md: `train`, `eval`, `ranks` (kind rank), `buckets` (kind bucket), `events` (kind event), and
`rows`, all of them in the order of the file. null is NaN. A run that resumed has each step once: a start line
invalidates earlier rows with later steps, except events. A last line that a crash has truncated is skipped.

    python3 lockstep_metrics.py runs/gpt               # prints how many rows of each kind there are
"""
import json
import math
import os
import sys
from dataclasses import dataclass

KINDS = {"train": "train", "eval": "eval", "ranks": "rank", "buckets": "bucket", "events": "event"}


@dataclass
class Run:
    """Rows as lists of dictionaries, or as data frames."""
    rows: object
    train: object
    eval: object
    ranks: object
    buckets: object
    events: object


def read_rows(path):
    """All valid rows of a run, as a list of dictionaries. Raises ValueError with the line that is not a row."""
    if os.path.isdir(path):
        path = os.path.join(path, "metrics.jsonl")
    rows = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # truncated, or still being written
            try:
                row = json.loads(line)
                kind = row["kind"]
                if kind == "start":
                    after = -1 if row["after"] is None else row["after"]
                    rows = [kept for kept in rows if kept["step"] <= after or kept["kind"] == "event"]
                    continue
                if kind not in KINDS.values() or not isinstance(row["step"], int):
                    raise ValueError("unknown kind, or no step")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"line {number} of {path} is not a row of metrics: {error}") from None
            rows.append({name: math.nan if value is None else value for name, value in row.items()})
    return rows


def read(path, frames=False):
    """Reads a run. With `frames`, returns pandas data frames; pandas must be installed."""
    rows = read_rows(path)
    parts = {name: [row for row in rows if row["kind"] == kind] for name, kind in KINDS.items()}
    if not frames:
        return Run(rows=rows, **parts)
    try:
        import pandas
    except ImportError:
        raise ImportError("frames=True needs pandas: install it, or use the lists of read(path)") from None
    return Run(rows=pandas.DataFrame(rows), **{name: pandas.DataFrame(part) for name, part in parts.items()})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 lockstep_metrics.py RUN")
    found = read(sys.argv[1])
    for name in KINDS:
        print(f"{name:8} {len(getattr(found, name))}")
