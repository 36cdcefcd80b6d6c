"""`lockstep train` with compressed gradients and with uneven batches.

The oracle of an interrupted run is an uninterrupted one; that of uneven batches is one rank with the whole batch.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2", "--sample-tokens", "0",
         "--eval-batches", "2", "--eval-every", "100st", "--warmup", "2st", "--schedule", "constant", "--save-every", "5st"]
METHODS = {"none": [], "bf16": [], "int8": [], "auto": [],
           "powersgd": ["--powersgd-rank", "2", "--powersgd-start", "3"]}


class Compression(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-compression-test-")
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "text.txt").write_text("".join(f"To be or not to be, question {i}\n" for i in range(400)))

    def tearDown(self):
        self.scratch.cleanup()

    def train(self, model, run, *arguments, expect=0):
        done = subprocess.run([LOCKSTEP, "train", model, "--run", run, *arguments], cwd=self.folder, text=True,
                              capture_output=True, timeout=300)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def gpt(self, run, steps, *more):
        out = self.train("gpt", run, "--data", "text.txt", "-n", "2", "--steps", str(steps), *SMALL, *more)
        return re.search(r"bit-identical on 2 ranks, digest (\w+)", out)[1], out

    def test_every_method_trains_and_a_resumed_run_is_bit_identical(self):
        digests = {}
        for method, options in METHODS.items():
            digests[method], out = self.gpt(f"whole-{method}", 10, "--compress", method, *options)
            self.assertEqual("compression: none: backend shm" in out, method == "auto", out)
            if method in ("int8", "powersgd"):
                self.gpt(f"cut-{method}", 6, "--compress", method, *options)
                resumed, out = self.gpt(f"cut-{method}", 10, "--compress", method, *options)
                self.assertIn("resumed at step 6", out)
                self.assertEqual(resumed, digests[method])
        self.assertEqual(digests["none"], digests["auto"], "on one host")
        self.assertEqual(len(set(digests.values())), len(METHODS) - 1, "the others round")

    def mlp(self, run, *arguments):
        """Trains on a table; the validation after two epochs."""
        (self.folder / "table.csv").write_text("".join(f"{i % 7}.5,{i % 5},{i % 3}\n" for i in range(601)))
        self.train("mlp", run, "--data", "table.csv", "--classes", "3", "--hidden", "8", "--epochs", "2", "--lr", "0.01",
                   *arguments)
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == "eval"][-1]

    def test_uneven_batches_train_as_one_rank_with_the_whole_batch(self):
        # Of 541 rows for training one is left after batches of 27: two ranks have none in the last step of an epoch.
        of_one = self.mlp("one", "-n", "1", "--batch", "27", "--tail", "uneven")
        of_three = self.mlp("three", "-n", "3", "--batch", "9", "--tail", "uneven")
        self.assertEqual(of_one["step"], 42)
        self.assertEqual(of_three["step"], 42)
        self.assertAlmostEqual(of_one["loss"], of_three["loss"], delta=1e-4 * of_one["loss"])
        self.assertEqual(self.mlp("drop", "-n", "2", "--batch", "9")["step"], 60)
        self.assertEqual(self.mlp("pad", "-n", "2", "--batch", "9", "--tail", "pad")["step"], 62)

    def test_options_without_effect_are_refused(self):
        out = self.train("gpt", "a", "--data", "text.txt", "--powersgd-rank", "2", expect=2)
        self.assertIn("--powersgd-rank has no effect without --compress powersgd or auto", out)
        out = self.train("gpt", "a", "--data", "text.txt", "--cuda-graph", "--tail", "uneven", expect=2)
        self.assertIn("give --tail drop or pad", out)


unittest.main()
