"""Backend mpi among ranks of two emulated hosts, started by mpirun: it is chosen, gives the bits of the oracle, and a killed
rank ends the job.

Run inside `hosts 2`: this process is in the box and reaches the hosts with `on h0 …`.
"""

import os
import unittest

from job_under_test import JobTest

PROGRAM = os.environ["LOCKSTEP_MPI_PROGRAM"]


class MpiOverHosts(JobTest):
    def mpirun(self, what, port):
        """Two ranks per host. Returns the process."""
        agent = self.folder / "agent"
        agent.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nh=$1; shift\nexec on "$h" sh -c "$*"\n')
        agent.chmod(0o755)
        return self.start("mpirun", "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "10.77.0.0/24",
                          "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca",
                          "mpi_yield_when_idle", "1", "--bind-to", "none", "-x", "LOCKSTEP_RENDEZVOUS", "-x", "HOME", "-x",
                          "LOCKSTEP_TEST_TOKEN", "-host", "h0:2,h1:2", "-np", "4", PROGRAM, what,
                          LOCKSTEP_RENDEZVOUS=f"h0:{port}", OMPI_ALLOW_RUN_AS_ROOT="1",
                          OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def test_the_backend_is_chosen_and_gives_the_bits_of_the_oracle(self):
        job = self.mpirun("hosts", 29701)
        output, _ = job.communicate(timeout=300)
        self.assertEqual(job.returncode, 0, output)
        for rank in range(4):
            self.assertIn(f"rank {rank} uses mpi: the 4 ranks are on 2 hosts and have an MPI communicator", output)

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        job = self.mpirun("kill", 29702)
        output, _ = job.communicate(timeout=300)
        self.assertNotEqual(job.returncode, 0, output)
        self.assertRegex(output, r"rank 1 .*has ended|rank 1 .* signal 9")


if __name__ == "__main__":
    unittest.main(verbosity=2)
