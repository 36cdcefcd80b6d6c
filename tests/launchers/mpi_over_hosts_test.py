"""Backend mpi among ranks of two emulated hosts, started by mpirun: it is chosen, gives the bits of the oracle, and a killed
rank ends the job.

Run inside `hosts 2`: this process is in the box and reaches the hosts with `on h0 …`.
"""

import os
import pathlib
import re
import unittest

from job_under_test import JobTest
from two_hosts_test import mpirun_over_hosts

PROGRAM = os.environ["LOCKSTEP_MPI_PROGRAM"]


class MpiOverHosts(JobTest):
    def mpirun(self, what, port):
        """Two ranks per host. Returns the process."""
        mpirun, variables = mpirun_over_hosts(self)
        return self.start(*mpirun, "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
                          "--mca", "mpi_yield_when_idle", "1", "-host", "h0:2,h1:2", "-np", "4", PROGRAM, what,
                          LOCKSTEP_RENDEZVOUS=f"h0:{port}", **variables)

    def test_the_backend_is_chosen_and_gives_the_bits_of_the_oracle(self):
        job = self.mpirun("hosts", 29701)
        output, _ = job.communicate(timeout=300)
        self.assertEqual(job.returncode, 0, output)
        for rank in range(4):
            self.assertIn(f"rank {rank} uses mpi: the 4 ranks are on 2 hosts and have an MPI communicator; the ranks of one "
                          "host share memory", output)

    def bytes_from_h0(self):
        """What the port of h0 in the bridge has received."""
        return int(re.search(r"\bh0: *(\d+)", pathlib.Path("/proc/net/dev").read_text())[1])

    def test_a_host_sends_each_byte_once(self):
        """An all_reduce sends the bytes of one input per host: half of them as partial sums, half as results. Connecting
        and headers are below 5 %."""
        before = self.bytes_from_h0()
        job = self.mpirun("bytes", 29703)
        output, _ = job.communicate(timeout=300)
        self.assertEqual(job.returncode, 0, output)
        share = (self.bytes_from_h0() - before) / (8 * 16 * 2**20)
        self.assertGreater(share, 0.99)
        self.assertLess(share, 1.05)

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        job = self.mpirun("kill", 29702)
        output, _ = job.communicate(timeout=300)
        self.assertNotEqual(job.returncode, 0, output)
        self.assertRegex(output, r"rank 1 .*has ended|rank 1 .* signal 9")


if __name__ == "__main__":
    unittest.main(verbosity=2)
