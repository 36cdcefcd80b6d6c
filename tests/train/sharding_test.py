"""`lockstep train --shard`: the ranks divide the work and the state of the optimizer.

The oracle is the same run without shards: the files of their checkpoints are equal, byte for byte.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
# Parameters of 256 KiB and more, so that every rank has shards; clipping takes effect.
SMALL = ["--data", "text.txt", "--layers", "1", "--width", "128", "--heads", "2", "--context", "32", "--batch", "2",
         "--sample-tokens", "0", "--eval-every", "100st", "--eval-batches", "1", "--warmup", "2st", "--save-every", "3st",
         "--schedule", "constant", "--max-grad-norm", "0.1"]


class Sharding(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-sharding-test-")
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "text.txt").write_text("".join(f"To be or not to be, question {i}\n" for i in range(400)))

    def tearDown(self):
        self.scratch.cleanup()

    def train(self, run, ranks, steps, *more):
        done = subprocess.run([LOCKSTEP, "train", "gpt", "--run", run, "-n", str(ranks), "--steps", str(steps), *more],
                              cwd=self.folder, text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self, run, step):
        return {path.name: path.read_bytes() for path in (self.folder / run / f"checkpoints/step-{step}").iterdir()}

    def assert_same_checkpoint(self, run, other, step):
        files, expected = self.files(run, step), self.files(other, step)
        self.assertEqual(files.keys(), expected.keys())
        self.assertIn("optimizer.safetensors", files)
        self.assertEqual([name for name in files if files[name] != expected[name]], [], "files that differ")

    def test_shards_change_no_byte_of_a_checkpoint_and_may_change_when_a_run_resumes(self):
        out = self.train("plain", 2, 4, *SMALL)
        self.assertNotIn("optimizer:", out)
        out = self.train("per-host", 2, 4, *SMALL, "--shard", "optimizer")
        self.assertIn("optimizer: divided among 2 ranks (--shard optimizer); one copy of the parameters per host", out)
        out = self.train("per-rank", 2, 4, *SMALL, "--shard", "auto", "--copies", "per-rank")
        self.assertIn("one copy of the parameters per rank", out)
        out = self.train("gradients", 2, 4, *SMALL, "--shard", "gradients")
        self.assertIn("divided among 2 ranks, with the gradients (--shard gradients)", out)
        for run in ("per-host", "per-rank", "gradients"):
            self.assert_same_checkpoint(run, "plain", 3)
            self.assert_same_checkpoint(run, "plain", 4)

        # One rank without shards, then four with them.
        for run, shard in (("plain", "none"), ("per-host", "auto")):
            alone = self.train(run, 1, 5, "--shard", shard)
            self.assertIn("resumed at step 4", alone)
            four = self.train(run, 4, 7, "--shard", shard)
            self.assertIn("resumed at step 5", four)
            for text in (alone, four):
                self.assertNotRegex(text, "warning: .*configuration")
        self.assertIn("not sharded (--shard auto): one rank has nothing to divide", alone)
        self.assertIn("divided among 4 ranks (--shard auto: all of them are on one host); one copy of the parameters per "
                      "host", four)
        self.assert_same_checkpoint("per-host", "plain", 5)
        self.assert_same_checkpoint("per-host", "plain", 7)

    def test_shards_and_compressed_gradients_train_as_compressed_gradients_alone(self):
        for run, shard in (("plain", "none"), ("sharded", "optimizer")):
            self.train(run, 2, 3, *SMALL, "--compress", "int8", "--shard", shard)
        self.assert_same_checkpoint("sharded", "plain", 3)


unittest.main()
