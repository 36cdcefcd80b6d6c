"""The same program under every launcher, on one host: the same world printed."""

import shutil
import subprocess
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, PYTHON, JobTest, expected_worlds, free_port, worlds


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

        codes = []

        def run(port):
            common = ("--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
                      "--no-python", PRINT_WORLD)
            agents = [self.start(*torchrun, "--node-rank", str(node), *common) for node in (1, 0)]
            output = agents[1].communicate(timeout=60)[0]
            if agents[1].returncode != 0:
                agents[0].kill()  # it would wait for node 0
            output += agents[0].communicate(timeout=60)[0]
            codes[:] = [agent.returncode for agent in agents]
            return output

        output = self.with_free_port(run)
        self.assertEqual(codes, [0, 0], output)
        # torchrun gives two nodes; the ranks detect that they share one host.
        self.assertEqual(worlds(output), [(*world[:6], "0000") for world in expected_worlds(2, 2)], output)

    def test_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed; tools/bootstrap test installs it")
        output = self.run_job("mpirun", "--oversubscribe", "-n", "4", PRINT_WORLD, OMPI_ALLOW_RUN_AS_ROOT="1",
                              OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.assertEqual(worlds(output), expected_worlds(1, 4))

    def test_kubernetes_variables(self):
        port = free_port()
        ranks = [self.start(PRINT_WORLD, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
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
