"""The settings of a run of `lockstep train gpt`, from the config.json in its folder."""

import json
import pathlib

import numpy


class RunSettings:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        config = json.loads((self.folder / "config.json").read_text())
        if config["model"] != "gpt":
            raise SystemExit(f"{folder} is a run of {config['model']}; the peer is a GPT")
        self.data = config["data"]
        self.world = config["world"]
        self.texts = {name: setting["value"] for name, setting in config["settings"].items()}

    def number(self, name):
        return float(self.texts[name])

    def whole(self, name):
        return int(self.texts[name])

    def steps(self, name):
        text = self.texts[name].removesuffix("st")
        if not text.isdigit():
            raise SystemExit(f"--{name} is {self.texts[name]}; the peer counts in steps: give a number of steps, such as 300")
        return int(text)

    def shape(self):
        return {name: self.whole(name) for name in ("context", "layers", "heads", "width")} | {
            "vocabulary": self.data["vocabulary"], "tied": self.texts["head"] == "tied"}

    def tokens(self):
        """The tokens for training, and those for validation: the last of the file."""
        values = numpy.memmap(self.folder / self.data["training"][0], dtype="<u2", mode="r")
        kept = int(len(values) * self.number("val-fraction"))
        return values[:len(values) - kept], values[len(values) - kept:]


def metrics(folder, kind):
    """The rows of `kind` in the run's metrics.jsonl that count, by step."""
    rows = {}
    for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "start":
            rows = {step: kept for step, kept in rows.items() if row["after"] is not None and step <= row["after"]}
        elif row["kind"] == kind:
            rows[row["step"]] = row
    return rows
