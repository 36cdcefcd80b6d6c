"""Reads the files of MetricsLog with independent readers: TensorBoard's own, csv and json.

    python metrics_agreement.py <path of the program logged_run>
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.backend.event_processing.plugin_event_accumulator import TENSORS, EventAccumulator
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

# The valid records of the run: steps 1 to 4 of its first start, 5 to 8 of its second.
LOSSES = {step: (6.0 if step <= 4 else 60.0) / step for step in range(1, 9)}
TEXT = "step ünd **bold**\n"


def scalars(events, tag):
    """Maps steps to values. The reader returns scalars as tensors of one float32."""
    return {event.step: event.tensor_proto.float_val[0] for event in events.Tensors(tag)}


def near(found, wanted):
    """float32 has 24 bits of precision."""
    return found.keys() == wanted.keys() and all(abs(found[k] - wanted[k]) <= wanted[k] * 2**-24 for k in wanted)


def check_tensorboard(folder):
    """The difference as text; None if there is none."""
    files = sorted(folder.glob("events.out.tfevents.*"))
    if len(files) != 2:
        return f"{len(files)} files for two starts"
    versions = [next(iter(EventFileLoader(str(file)).Load())).file_version for file in files]
    if versions != ["brain.Event:2"] * 2:
        return f"versions {versions}"
    events = EventAccumulator(str(folder), size_guidance={TENSORS: 0})
    events.Reload()
    tags = sorted(events.Tags()["tensors"])
    if tags != ["eval/loss", "eval/sample", "train/loss", "train/tokens"]:
        return f"tags {tags}"
    if not near(scalars(events, "train/loss"), LOSSES):
        return f"train/loss is {scalars(events, 'train/loss')}, wanted {LOSSES}"
    if not near(scalars(events, "eval/loss"), {step: LOSSES[step] + 0.25 for step in (2, 4, 6, 8)}):
        return f"eval/loss is {scalars(events, 'eval/loss')}"
    texts = {event.step: event.tensor_proto.string_val[0].decode() for event in events.Tensors("eval/sample")}
    if texts != {step: TEXT for step in (2, 4, 6, 8)}:
        return f"eval/sample is {texts}"
    plugins = {tag: events.SummaryMetadata(tag).plugin_data.plugin_name for tag in ("eval/sample", "train/loss")}
    if plugins != {"eval/sample": "text", "train/loss": "scalars"}:
        return f"plugins {plugins}"
    return None


def check_tables(folder):
    with open(folder / "metrics.csv", newline="") as file:
        rows = {int(row["step"]): (float(row["loss"]), int(row["tokens"])) for row in csv.DictReader(file)}
    if rows != {step: (loss, 1000 * step) for step, loss in LOSSES.items()}:
        return f"metrics.csv is {rows}"
    with open(folder / "metrics_eval.csv", newline="") as file:
        rows = {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}
    if rows != {step: LOSSES[step] + 0.25 for step in (2, 4, 6, 8)}:
        return f"metrics_eval.csv is {rows}"
    return None


def check_jsonl(folder):
    """The rule of the format: a start invalidates earlier records of later steps."""
    losses = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "start":
            losses = {step: loss for step, loss in losses.items() if row["after"] is not None and step <= row["after"]}
        elif row["kind"] == "train":
            losses[row["step"]] = row["loss"]
    return None if losses == LOSSES else f"metrics.jsonl gives {losses}"


def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.argv[1], name], check=True)
        for what, problem in (("TensorBoard", check_tensorboard(folder / "tensorboard")),
                              ("csv", check_tables(folder)), ("json", check_jsonl(folder))):
            print(f"{what}: {problem or 'equal to what was written'}")
            failures += problem is not None
    return 1 if failures else 0


sys.exit(main())
