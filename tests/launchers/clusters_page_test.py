"""The commands of docs/clusters.md on two emulated hosts.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`. The names
node0 and node1 of the page are h0 and h1.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest, worlds
from two_hosts_test import ROOT, start_slurm

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT / "tests/snippets"))
import pages  # noqa: E402

PAGE = CHECKOUT / "docs/clusters.md"
BLOCKS = pages.blocks_of_page(PAGE.read_text(), PAGE)


def command_lines(beginning):
    """The commands of the page that begin so."""
    found = [line for block in BLOCKS for line in block.lines if line.startswith(beginning)]
    assert found, f"{PAGE} has no command that begins with {beginning}"
    return found


class ClustersPage(JobTest):
    def setUp(self):
        super().setUp()
        self.environment["PATH"] = f"{pathlib.Path(LOCKSTEP).parent}:{os.environ['PATH']}:/usr/sbin"
        (self.folder / "my_program").symlink_to(PRINT_WORLD)

    def on_each_node(self, lines, *more):
        """Starts each command on the node that its comment names, and returns their outputs."""
        jobs = []
        for line in reversed(lines):
            command, _, node = line.partition("  # on node")
            jobs.insert(0, self.start("on", f"h{int(node)}", "bash", "-c", f"{command.strip()} {' '.join(more)}"))
        outputs = [job.communicate(timeout=120)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), "\n----\n".join(outputs))
        return outputs

    def expect_four_ranks(self, output):
        self.assertEqual([(world[0], world[1], world[6]) for world in worlds(output)],
                         [(rank, 4, "0011") for rank in range(4)], output)

    def test_the_commands_on_each_node(self):
        self.expect_four_ranks("".join(self.on_each_node(command_lines("lockstep run"))))

    def test_the_trainer_on_each_node(self):
        words = self.folder / "words.txt"
        words.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
        lines = [line.replace("/shared/", f"{self.folder}/") for line in command_lines("lockstep train")]
        lines = [re.sub("(  # on node.)", f" --data {words} --debug-small --steps 6 --warmup 2st \\1", line) for line in lines]
        outputs = self.on_each_node(lines)
        self.assertIn("bit-identical on 4 ranks", outputs[0])

    def test_the_command_of_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed; tools/bootstrap test installs it")
        agent = self.folder / "agent"
        agent.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nh=${1/node/h}; shift\nexec on "$h" sh -c "$*"\n')
        agent.chmod(0o755)
        [line] = command_lines("mpirun")
        words = shlex.split(line)
        box = ["--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "10.77.0.0/24", "-x", "HOME", "-x",
               "LOCKSTEP_TEST_TOKEN"]
        self.expect_four_ranks(self.run_job(words[0], *box, *words[1:], **ROOT))

    def test_the_commands_of_srun(self):
        daemons, slurm = start_slurm(self)
        for line in command_lines("srun"):
            self.expect_four_ranks(self.run_job("bash", "-c", line, **slurm))
        for daemon in daemons:
            daemon.terminate()

    def test_the_manifest_of_kubernetes(self):
        [manifest] = ["\n".join(block.lines) for block in BLOCKS if "kind: Job" in block.lines]
        variables = dict(re.findall(r"\{name: ([A-Z_]+), value: \"?([^\"}]+)\"?\}", manifest))
        self.assertEqual(set(variables), {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_SECRET_FILE"})
        secret = self.folder / "secret"
        secret.write_text(subprocess.run(["openssl", "rand", "-hex", "32"], stdout=subprocess.PIPE, text=True,
                                         check=True).stdout.strip())
        secret.chmod(0o400)
        variables["LOCKSTEP_SECRET_FILE"] = str(secret)
        self.assertEqual(variables["MASTER_ADDR"], "train-0.train")
        variables["MASTER_ADDR"] = "node0"
        pods = [self.start("on", f"h{index}", "./my_program", **variables, JOB_COMPLETION_INDEX=str(index))
                for index in (1, 0)]
        output = "".join(pod.communicate(timeout=60)[0] for pod in pods)
        self.assertEqual([pod.returncode for pod in pods], [0, 0], output)
        self.assertEqual([(world[0], world[1], world[6]) for world in worlds(output)], [(0, 2, "01"), (1, 2, "01")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
