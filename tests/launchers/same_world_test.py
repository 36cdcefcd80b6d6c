"""The same program under every launcher, on one host: the same world printed."""

import shutil
import subprocess
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, PYTHON, JobTest, expected_worlds, worlds


class SameWorld(JobTest):
    def test_without_a_launcher_it_is_a_world_of_one(self):
        self.assertEqual(worlds(self.run_job(PRINT_WORLD)), expected_worlds(1, 1))
        self.assertEqual(list(self.folder.glob("runs")), [], "a process without a launcher writes no files")

    def test_lockstep_run(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "4", PRINT_WORLD)
        self.assertEqual(worlds(output), expected_worlds(1, 4))

    def test_spawn_by_variable(self):
        self.assertEqual(worlds(self.run_job(PRINT_WORLD, LOCKSTEP_RANKS="4")), expected_worlds(1, 4))

    def test_torchrun(self):
        torchrun = self.torchrun()
        output = self.run_job(*torchrun, "--standalone", "--nproc-per-node", "4", "--no-python", PRINT_WORLD)
        self.assertEqual(worlds(output), expected_worlds(1, 4))

    def test_torchrun_with_two_agents_on_one_host(self):
        torchrun = self.torchrun()
        port = subprocess.run([PYTHON, "-c", "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); "
                               "print(s.getsockname()[1])"], capture_output=True, text=True, check=True).stdout.strip()
        common = ("--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port,
                  "--no-python", PRINT_WORLD)
        second = self.start(*torchrun, "--node-rank", "1", *common)
        output = self.run_job(*torchrun, "--node-rank", "0", *common)
        output += second.communicate(timeout=60)[0]
        # torchrun gives two nodes; the ranks detect that they share one host.
        self.assertEqual(worlds(output), [(*world[:6], "0000") for world in expected_worlds(2, 2)])

    def test_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed; tools/bootstrap test installs it")
        output = self.run_job("mpirun", "--oversubscribe", "-n", "4", PRINT_WORLD, OMPI_ALLOW_RUN_AS_ROOT="1",
                              OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.assertEqual(worlds(output), expected_worlds(1, 4))

    def test_kubernetes_variables(self):
        ranks = [self.start(PRINT_WORLD, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
                            LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="3") for rank in range(3)]
        output = "".join(rank.communicate(timeout=60)[0] for rank in ranks)
        self.assertEqual(worlds(output), expected_worlds(1, 3))

    def test_two_launchers_that_contradict_each_other_are_both_named(self):
        output = self.run_job(PRINT_WORLD, code=1, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                              MASTER_PORT="29512", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="3",
                              OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_SIZE="3")
        self.assertIn("mpirun", output)
        self.assertIn("RANK", output)

    def torchrun(self):
        has_torch = subprocess.run([PYTHON, "-c", "import torch.distributed.run"], capture_output=True)
        if has_torch.returncode != 0:
            self.skipTest("torch is not installed for Python; tools/bootstrap test installs it")
        return PYTHON, "-m", "torch.distributed.run"


if __name__ == "__main__":
    unittest.main()
