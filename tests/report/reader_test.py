#!/usr/bin/env python3
"""The Python reader returns the rows that read_metrics() returns, for files with restarts, truncated lines, odd values.

    reader_test.py <the program read_rows> <lockstep_metrics.py>
"""
import importlib.util
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

program, reader_path = sys.argv[1:3]
spec = importlib.util.spec_from_file_location("lockstep_metrics", reader_path)
lockstep_metrics = importlib.util.module_from_spec(spec)
sys.modules["lockstep_metrics"] = lockstep_metrics
spec.loader.exec_module(lockstep_metrics)

KINDS = ["train", "eval", "rank", "bucket", "event"]


def random_file(random_numbers):
    """Lines of a run with a few restarts; half of the files end in the middle of a line."""
    lines, step = ['{"kind":"start","format":"lockstep-metrics","version":1,"time":1.5,"after":null}'], 0
    for _ in range(random_numbers.randrange(60)):
        if random_numbers.random() < 0.08:
            step = random_numbers.randrange(step + 1)
            lines.append(json.dumps({"kind": "start", "time": 2.0, "after": step or None}))
            continue
        step += random_numbers.randrange(3)
        row = {"kind": random_numbers.choice(KINDS), "step": step, "time": random_numbers.randrange(10 ** 6) / 1000}
        for name in random_numbers.sample(["loss", "lr", "rank", "text", "empty", "big"], random_numbers.randrange(5)):
            row[name] = {"text": "a \"quoted\" ünd 漢\n", "empty": None, "rank": 3, "big": 2 ** 53 + 1}.get(
                name, random_numbers.uniform(-1e3, 1e3))
        lines.append(json.dumps(row, ensure_ascii=random_numbers.random() < 0.5))
    text = "\n".join(lines) + "\n"
    return text[:-random_numbers.randrange(1, 20)] if random_numbers.random() < 0.5 else text


def same(left, right):
    def plain(row):
        return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
    return [plain(row) for row in left] == [plain(row) for row in right]


def main():
    random_numbers = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "metrics.jsonl"
        restarted = 0
        for case in range(60):
            path.write_text(random_file(random_numbers), encoding="utf-8")
            restarted += path.read_text(encoding="utf-8").count('"start"') > 1
            answer = subprocess.run([program, path], capture_output=True, text=True)
            assert answer.returncode == 0, answer.stderr
            expected = [json.loads(line) for line in answer.stdout.splitlines()]
            run = lockstep_metrics.read(folder)
            assert same(run.rows, expected), f"case {case}:\n{path.read_text()}\n{run.rows}\n{expected}"
            assert same(run.ranks, [row for row in expected if row["kind"] == "rank"])
            assert same(run.events, [row for row in expected if row["kind"] == "event"])
        assert restarted > 20, restarted
        for line in ('{"kind":"moon","step":1}', '{"kind":"train"}', "[1]", "nonsense", '{"kind":"start"}'):
            path.write_text(line + "\n")
            assert subprocess.run([program, path], capture_output=True).returncode == 2, line
            try:
                lockstep_metrics.read(folder)
            except ValueError as error:
                assert "line 1 of" in str(error), error
            else:
                raise AssertionError(f"the reader accepted {line}")
        path.write_text('{"kind":"train","step":1,"time":2,"loss":3.5}\n')
        try:
            import pandas
        except ImportError:
            pandas = None
        if pandas:
            assert list(lockstep_metrics.read(folder, frames=True).train["loss"]) == [3.5]
        else:
            try:
                lockstep_metrics.read(folder, frames=True)
            except ImportError as error:
                assert "pandas" in str(error)
    print("the Python reader and read_metrics() agree on 60 files")


main()
