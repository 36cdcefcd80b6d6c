"""Which processes belong to a job: launchers of an earlier run, other jobs of the same user, names in use by others."""

import os
import signal
import subprocess
import sys
import time
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest, expected_worlds, free_port, worlds


class Identity(JobTest):
    def node(self, number, port, name, *command):
        return self.start(LOCKSTEP, "run", "-n", "1", "--nnodes", "2", "--node-rank", str(number), "--rendezvous",
                          f"127.0.0.1:{port}", "--timeout", "60s", "--run-dir", f"{name}{number}", *command)

    def test_a_launcher_of_an_earlier_run_does_not_join(self):
        port = free_port()
        stale = self.node(1, port, "old", "echo", "old program", "--lr", "0.1")
        time.sleep(0.5)  # it tries to reach node 0
        first = self.node(0, port, "new", "echo", "new program")
        words = stale.communicate(timeout=60)[0]
        self.assertNotEqual(stale.returncode, 0)
        self.assertIn("echo old program --lr 0.1", words)
        self.assertIn("echo new program", words)
        second = self.node(1, port, "new", "echo", "new program")
        output = first.communicate(timeout=60)[0] + second.communicate(timeout=60)[0]
        self.assertEqual((first.returncode, second.returncode), (0, 0), output)
        self.assertNotIn("old program", output)

    def test_two_jobs_of_mpich_do_not_mix(self):
        # Each rank has its own shell as parent, as with a script between launcher and program.
        job = "import os, socket, subprocess, sys\n" \
              "ends = [socket.socketpair() for _ in range(2)]\n" \
              "ranks = [subprocess.Popen(['sh', '-c', sys.argv[1] + '; exit $?'], pass_fds=[end[1].fileno()],\n" \
              "                          env={**os.environ, 'PMI_RANK': str(rank), 'PMI_SIZE': '2',\n" \
              "                               'MPI_LOCALRANKID': str(rank), 'MPI_LOCALNRANKS': '2',\n" \
              "                               'PMI_FD': str(end[1].fileno())})\n" \
              "         for rank, end in reversed(list(enumerate(ends)))]\n" \
              "sys.exit(max(rank.wait() for rank in ranks))\n"
        jobs = [self.start(sys.executable, "-c", job, PRINT_WORLD) for _ in range(4)]
        for each in jobs:
            output = each.communicate(timeout=60)[0]
            self.assertEqual(each.returncode, 0, output)
            self.assertEqual(worlds(output), expected_worlds(1, 2), output)

    def plain_rank(self, rank, size, port):
        return self.start(PRINT_WORLD, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(port), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                          PRINT_WORLD_TIMEOUT="600")

    def test_rank_0_ends_when_the_meeting_has_failed(self):
        port = free_port()
        first, second = self.plain_rank(0, 3, port), self.plain_rank(1, 3, port)
        time.sleep(2)  # both wait for rank 2
        second.send_signal(signal.SIGKILL)
        output = first.communicate(timeout=120)[0]  # waiting for ranks that request the secret would take 600 s
        self.assertIn("rank 1", output)
        second.communicate()

    def test_a_name_in_use_is_reported_with_its_process(self):
        port = free_port()
        name = f"\0lockstep-{os.getuid()}-0-plain-127.0.0.1:{port}-store"
        holder = ("import os, socket, sys, time\nif sys.argv[1:]: os.setuid(int(sys.argv[1]))\n"
                  "s = socket.socket(socket.AF_UNIX)\n"
                  f"s.bind({name!r})\ns.listen()\nprint('bound', flush=True)\ntime.sleep(60)\n")
        users = [None] + ([65534] if os.getuid() == 0 else [])
        for user in users:
            with self.subTest(user=user):
                process = subprocess.Popen([sys.executable, "-c", holder, *([str(user)] if user else [])],
                                           stdout=subprocess.PIPE, text=True, env=self.environment)
                self.assertEqual(process.stdout.readline(), "bound\n")
                rank = self.plain_rank(0, 2, port)
                output = rank.communicate(timeout=60)[0]
                self.assertIn(f"is in use by process {process.pid} of {'this user' if user is None else f'user {user}'}", output)
                process.kill()
                process.communicate()


if __name__ == "__main__":
    unittest.main()
