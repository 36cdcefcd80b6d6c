"""`lockstep train` on a GPU: it is chosen and named, a stopped run resumes bit-identical, the CPU can read the result.

The oracle of an interrupted run is an uninterrupted one: `lockstep ckpt diff` finds no difference.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
SMALL = ["--layers", "2", "--width", "64", "--heads", "2", "--context", "64", "--batch", "4", "--sample-tokens", "20",
         "--eval-batches", "2", "--eval-every", "50", "--warmup", "5", "--log-every", "20", "--deterministic"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}  # set by the trainer


def has_gpu():
    return any(pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))


class TrainOnGpu(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-gpu-test-")
        self.folder = pathlib.Path(self.scratch.name)
        draw = random.Random(7)
        words = "the of and to in a is that for it was on are as with his they at be this from have".split()
        lines = "\n".join(" ".join(draw.choice(words) for _ in range(10)) for _ in range(800))
        (self.folder / "words.txt").write_text(lines)

    def tearDown(self):
        self.scratch.cleanup()

    def command(self, run, *more):
        return [LOCKSTEP, "train", "gpt", "--data", "words.txt", "--run", run, "--save-every", "50", *SMALL, *more]

    def run_command(self, command, expect=0):
        done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=300, env=ENVIRONMENT)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_gpu_is_used_and_named_and_the_model_learns(self):
        out = self.run_command(self.command("a", "--steps", "200"))
        self.assertIn("Training on the GPU with one rank: ", out)
        self.assertIn("ranks: 1 on the GPU cuda:0", out)
        last = [line for line in out.splitlines() if "validation loss" in line and line.startswith("step")][-1]
        self.assertLess(float(last.split("validation loss ")[1].split(",")[0]), 2.8, out)
        rows = [json.loads(line) for line in (self.folder / "a/metrics.jsonl").read_text().splitlines()]
        ranks = [row for row in rows if row["kind"] == "rank"]
        self.assertGreater(ranks[-1]["gpu_memory_bytes"], 0)
        # An interval of 20 steps without an evaluation waits for the device at its end, to log the loss.
        least = min(row["host_syncs"] for row in ranks if row["steps"] == 20)
        self.assertTrue(0 < least < 1, ranks)
        text = self.run_command([LOCKSTEP, "generate", "--run", "a", "--prompt", "the", "--tokens", "8"])
        self.assertIn("8 tokens", text)

    def interrupt(self, run, number):
        """Sends the signal once the first checkpoint is there, and returns exit code and output."""
        process = subprocess.Popen(self.command(run, "--steps", "400"), cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        while not list((self.folder / run).glob("checkpoints/step-*")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        out = process.communicate(timeout=120)[0]
        return process.returncode, out

    def test_a_stopped_or_killed_run_resumes_and_ends_bit_identical(self):
        self.run_command(self.command("whole", "--steps", "400"))
        code, out = self.interrupt("stopped", signal.SIGTERM)
        self.assertEqual(code, 0, out)
        self.assertIn("stopped at step", out)
        code, out = self.interrupt("killed", signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL, out)
        for run in ("stopped", "killed"):
            self.assertIn(f"Resuming {run}", self.run_command(self.command(run, "--steps", "400")))
            self.run_command([LOCKSTEP, "ckpt", "diff", "whole", run])

    def test_generated_text_is_that_of_the_cpu(self):
        self.run_command(self.command("text", "--steps", "200"))
        texts = {}
        for device in ("cpu", "cuda"):
            command = [LOCKSTEP, "generate", "--run", "text", "--prompt", "the", "--tokens", "200", "-t", "0",
                       "--device", device]
            done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=300, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            texts[device] = done.stdout
            self.assertEqual("on the GPU" in done.stderr, device == "cuda", done.stderr)
        self.assertEqual(texts["cpu"], texts["cuda"])
        self.assertGreater(len(texts["cpu"]), 200)

    def test_precisions_and_the_cpu(self):
        for precision in ("bf16", "fp16"):
            out = self.run_command(self.command(precision, "--steps", "60", "--precision", precision))
            self.assertIn("cuda:0", out)
        out = self.run_command(self.command("cpu", "--steps", "20", "--device", "cpu", "-n", "2"))
        self.assertIn("ranks: 2 on the CPU", out)
        more = str(1 + len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))))
        out = self.run_command(self.command("two", "--steps", "20", "--device", "cuda", "-n", more), expect=2)
        self.assertIn("--allow-shared-gpu lets ranks share one", out)
        out = self.run_command(self.command("two", "--steps", "60", "--device", "cuda", "-n", more, "--allow-shared-gpu"))
        self.assertIn(f"ranks: {more} on GPUs", out)
        out = self.run_command([LOCKSTEP, "train", "mlp", "--debug-small", "--data", self.csv(), "--run", "mlp"])
        self.assertIn("cuda:0", out)

    def csv(self):
        draw = random.Random(5)
        rows = ["a,b,c,target"]
        for _ in range(400):
            a, b, c = (draw.random() for _ in range(3))
            rows.append(f"{a:.4f},{b:.4f},{c:.4f},{int(a + b > c)}")
        (self.folder / "rows.csv").write_text("\n".join(rows) + "\n")
        return "rows.csv"


if __name__ == "__main__":
    if not has_gpu():
        print("SKIPPED: no GPU on this machine")
        sys.exit(77)
    unittest.main()
