"""Training on two emulated hosts: Ddp, Run and `lockstep train` give the bits of one host, and a run resumes.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`.
The oracle of a run over two hosts is the run of as many ranks on one host: `lockstep ckpt diff` finds no difference.
"""

import os
import random
import re
import signal
import subprocess
import unittest

from job_under_test import LOCKSTEP, JobTest
from two_hosts_test import mpirun_over_hosts, start_slurm

EXAMPLE = os.environ["LOCKSTEP_EXAMPLE_RESUME"]
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2", "--sample-tokens", "0",
         "--eval-batches", "2", "--eval-every", "10st", "--warmup", "2st", "--log-every", "5", "--steps", "20",
         "--save-every", "5st"]


class TrainingOverHosts(JobTest):
    def setUp(self):
        super().setUp()
        # Each emulated host has all processors: without this, a rank there would have more threads than beside others,
        # and LibTorch's own sums depend on their number.
        self.environment["OMP_NUM_THREADS"] = "1"
        words = "the of and to in a is that for it was on are as with his they at be this from have".split()
        draw = random.Random(7)
        self.text = self.folder / "words.txt"
        self.text.write_text("\n".join(" ".join(draw.choice(words) for _ in range(10)) for _ in range(800)))

    def on_nodes(self, sizes, command, arguments, port, options=()):
        """Starts `lockstep COMMAND` with these numbers of ranks on h0, h1; node 0 last. Returns the jobs, node 0 first."""
        jobs = []
        for node, ranks in reversed(list(enumerate(sizes))):
            words = ["on", f"h{node}", LOCKSTEP, *command, "-n", str(ranks), *options]
            if len(sizes) > 1:
                words += ["--nnodes", str(len(sizes)), "--node-rank", str(node), "--rendezvous", f"h0:{port}",
                          "--timeout", "60s"]
            jobs.insert(0, self.start(*words, *arguments))
        return jobs

    def finish(self, jobs, code=0):
        outputs = [job.communicate(timeout=120)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [code] * len(jobs), "\n----\n".join(outputs))
        return outputs

    def assert_same_checkpoint(self, run, other):
        done = subprocess.run([LOCKSTEP, "ckpt", "diff", run, other], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_ddp_and_run_give_the_bits_of_one_host(self):
        for port, sizes in ((29420, [1, 1]), (29422, [2, 2])):
            self.finish(self.on_nodes([sum(sizes)], ["run"], [EXAMPLE, f"one{port}"], 0))
            self.finish(self.on_nodes(sizes, ["run"], [EXAMPLE, f"two{port}"], port))
            self.assert_same_checkpoint(f"one{port}", f"two{port}")
        with self.subTest("mpirun"):
            mpirun, variables = mpirun_over_hosts(self)
            self.run_job(*mpirun, "-x", "OMP_NUM_THREADS", "-host", "h0:2,h1:2", "-np", "4", EXAMPLE, "by_mpirun",
                         limit=120, LOCKSTEP_RENDEZVOUS="h0:29428", **variables)
            self.assert_same_checkpoint("one29422", "by_mpirun")
        with self.subTest("srun"):
            daemons, slurm = start_slurm(self)
            self.run_job("srun", "-N2", "-n4", EXAMPLE, "by_srun", limit=120, **slurm)
            for daemon in daemons:
                daemon.terminate()
            self.assert_same_checkpoint("one29422", "by_srun")

    def train(self, sizes, run, port, *more):
        return self.on_nodes(sizes, ["train", "gpt"], ["--data", str(self.text), "--run", run, *SMALL, *more], port)

    def test_the_trainer_gives_the_bits_of_one_host_and_resumes(self):
        [output] = self.finish(self.train([2], "one", 0))
        digest = re.search(r"bit-identical on 2 ranks.*", output)[0]

        [first, second] = self.finish(self.train([1, 1], "two", 29424))
        self.assertIn(digest, first)
        self.assertIn("the 2 ranks are on 2 hosts", first)
        self.assertEqual(second, "")  # node 0 speaks for all
        self.assert_same_checkpoint("one", "two")
        for output in self.finish(self.train([1, 1], "two", 29425)):
            self.assertIn("This run is finished", output)

        jobs = self.train([1, 1], "cut", 29426, "--max-restarts", "0")
        self.wait_for(lambda: list(self.folder.glob("cut/checkpoints/step-*")), "a checkpoint")
        rank = self.workers("lockstep-train")[1]  # on node 1
        os.kill(rank, signal.SIGKILL)
        for job in jobs:
            job.communicate(timeout=120)
            self.assertNotEqual(job.returncode, 0)
        [first, _] = self.finish(self.train([1, 1], "cut", 29427))
        self.assertIn("Resuming cut", first)
        self.assertIn(digest, first)
        self.assert_same_checkpoint("one", "cut")

    def test_shards_give_the_bits_of_one_host_without_them(self):
        [output] = self.finish(self.train([2], "one", 0))
        digest = re.search(r"bit-identical on 2 ranks.*", output)[0]
        for port, shard in ((29430, "optimizer"), (29432, "gradients")):
            [first, _] = self.finish(self.train([1, 1], shard, port, "--shard", shard))
            self.assertIn("divided among 2 ranks", first)
            self.assertIn(digest, first)
            for part in ("model", "optimizer"):
                files = [list(self.folder.glob(f"{run}/checkpoints/step-*20/{part}*")) for run in ("one", shard)]
                self.assertEqual([len(found) for found in files], [1, 1], files)
                self.assertEqual(files[0][0].read_bytes(), files[1][0].read_bytes(), f"{part} with --shard {shard}")

    def test_a_node_that_cannot_reach_the_first_says_what_to_check(self):
        job = self.start("on", "h1", LOCKSTEP, "run", "-n", "1", "--nnodes", "2", "--node-rank", "1", "--rendezvous",
                         "10.77.0.10:29429", "--run-dir", "run1", "--timeout", "1s", "true")
        output = job.communicate(timeout=60)[0]
        self.assertEqual(job.returncode, 125, output)
        self.assertIn("node 1 cannot reach node 0 at 10.77.0.10:29429", output)
        self.assertRegex(output, "Connection refused|timed out")
        self.assertIn("no firewall blocks TCP port 29429", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
