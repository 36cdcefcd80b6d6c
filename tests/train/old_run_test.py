"""A run that version 0.1 of `lockstep train` started: today's command reads it, resumes it and ends as 0.1 did.

The oracle is the uninterrupted run of version 0.1 (tests/old_runs/README.md).
"""

import csv
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
DATA = pathlib.Path(__file__).resolve().parent.parent / "old_runs" / "version_0_1"

STEPS = [1, *range(50, 1201, 50)]
WHOLE_LOSS = 2.6717
WHOLE_DIGEST = "fce040f95af0ef80"  # on aarch64; other processors round some kernels differently
NEW_NAMES = {"rate": "lr", "rate-floor": "min-lr-ratio", "rate-scaling": "lr-scaling", "rate-batch": "base-batch-size",
             "clip": "max-grad-norm", "accumulate": "grad-accum", "held-out": "val-fraction",
             "evaluate-every": "eval-every", "evaluate-batches": "eval-batches",
             "for": "steps or epochs or tokens or time"}


class OldRun(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-old-run-test-")
        self.folder = pathlib.Path(self.scratch.name)
        self.run_folder = self.folder / "runs/stopped"
        shutil.copytree(DATA / "stopped", self.run_folder)
        for name in ("lines.txt", "train.toml"):
            shutil.copy(DATA / name, self.folder / name)

    def tearDown(self):
        self.scratch.cleanup()

    def lockstep(self, *arguments, expect=0, **variables):
        # Bits depend on the number of threads, and the run had one per rank.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        done = subprocess.run([LOCKSTEP, *arguments], cwd=self.folder, text=True, capture_output=True, timeout=600,
                              env=environment)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def rows(self, kind):
        """The valid rows of metrics.jsonl, by the rule of docs/metrics.md."""
        rows = []
        for line in (self.run_folder / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["kind"] == "start":
                rows = [kept for kept in rows if row["after"] is not None and kept["step"] <= row["after"]]
            else:
                rows.append(row)
        return [row for row in rows if row["kind"] == kind]

    def test_it_resumes_and_ends_as_the_uninterrupted_run_of_version_0_1(self):
        out = self.lockstep("train", "gpt", "--run", "runs/stopped")
        self.assertIn("Resuming runs/stopped: it is unfinished.", out)
        self.assertIn("resumed at step 385", out)
        self.assertIn("Done: 1200 steps.", out)
        self.assertNotIn("warning", out, "the configuration of the checkpoint is the same under other names")
        (loss,) = re.findall(r"validation loss (\S+) over", out)
        self.assertLessEqual(abs(float(loss) - WHOLE_LOSS), 1e-2, out)
        (digest,) = re.findall(r"bit-identical on 2 ranks, digest ([0-9a-f]{16})", out)
        if platform.machine() == "aarch64":
            self.assertEqual(digest, WHOLE_DIGEST)
            self.assertIn("best 2.6696 at step 1100", out)

        train = self.rows("train")
        self.assertEqual([row["step"] for row in train], STEPS)
        self.assertEqual([("rate" in row, "lr" in row) for row in train], [(s <= 385, s > 385) for s in STEPS])
        self.assertEqual([row["step"] for row in self.rows("eval")], list(range(100, 1201, 100)))
        with open(self.run_folder / "metrics.csv", newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([int(row["step"]) for row in table], STEPS)
        self.assertNotIn("rate", table[0])
        self.assertEqual([float(row["lr"]) for row in table], [row.get("lr", row.get("rate")) for row in train])

        settings = json.loads((self.run_folder / "config.json").read_text())["settings"]
        self.assertEqual(set(NEW_NAMES) & set(settings), set(), "written under the new names")
        self.assertEqual(settings["lr"], {"value": "0.002", "origin": "train.toml"})
        self.assertEqual(settings["steps"], {"value": "1200", "origin": "train.toml"})
        self.assertIn("This run is finished", self.lockstep("train", "gpt", "--run", "runs/stopped"))

    def test_generate_and_ckpt_read_it(self):
        out = self.lockstep("generate", "--run", "runs/stopped", "--prompt", "one", "--tokens", "5")
        self.assertIn("step 300 (best)", out)
        self.assertIn("2 of 2 valid", self.lockstep("ckpt", "verify", "runs/stopped"))
        self.assertIn("385", self.lockstep("ckpt", "inspect", "runs/stopped"))
        self.assertIn("model of step 385", self.lockstep("ckpt", "export", "runs/stopped", "-o", "model.safetensors"))

    def test_a_finished_run_is_recognized(self):
        shutil.copy(DATA / "finished.json", self.run_folder / "finished.json")
        out = self.lockstep("train", "gpt", "--run", "runs/stopped")
        self.assertIn("This run is finished: Done: 1200 steps.", out)
        self.assertIn("train gpt --run runs/stopped --steps 2400", out)

    def test_old_names_that_a_user_gives_are_refused_with_their_new_names(self):
        out = self.lockstep("train", "gpt", "--config", "train.toml", expect=2)
        for old, new in NEW_NAMES.items():
            self.assertRegex(out, rf"(: |; ){old} is now {new}(;|\n)")
        out = self.lockstep("train", "gpt", *(word for old in NEW_NAMES for word in (f"--{old}", "1")), expect=2)
        for old, new in NEW_NAMES.items():
            self.assertIn(f"--{old} is now --{new.replace(' or ', ' or --')};", out)
        out = self.lockstep("train", "gpt", expect=2, LOCKSTEP_TRAIN_RATE="1")
        self.assertIn("LOCKSTEP_TRAIN_RATE is now LOCKSTEP_TRAIN_LR", out)
        self.assertFalse((self.folder / "runs/gpt").exists())


if __name__ == "__main__":
    unittest.main()
