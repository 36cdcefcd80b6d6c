"""Collectives among ranks of two emulated hosts: the bits of one host, and the loss of a rank, a link and a process.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from job_under_test import LOCKSTEP, JobTest

PROGRAM = os.environ["LOCKSTEP_COLLECTIVES_OVER_HOSTS"]


class CollectivesOverHosts(JobTest):
    def nodes(self, sizes, *arguments, port, options=()):
        return [self.start("on", f"h{node}", LOCKSTEP, "run", "-n", str(ranks), "--nnodes", str(len(sizes)),
                           "--node-rank", str(node), "--rendezvous", f"h0:{port}", "--grace", "2s", "--run-dir",
                           f"run{node}", "--timeout", "20s", *options, PROGRAM, *arguments)
                for node, ranks in reversed(list(enumerate(sizes)))]

    def logs(self):
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("run*/logs/*.log")))

    def digests(self, sizes, port, options=()):
        jobs = self.nodes(sizes, "digest", port=port, options=options)
        output = "".join(job.communicate(timeout=120)[0] for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [0] * len(sizes), output)
        text = self.logs()
        for run in self.folder.glob("run*"):
            shutil.rmtree(run)
        return set(re.findall(r"uses (\w+): (.*)", text)), re.findall(r"digest (\w+)", text)

    def test_reductions_have_the_bits_of_one_host(self):
        kinds, on_one = self.digests([4], 29401)
        self.assertEqual(kinds, {("shm", "all 4 ranks are on one host")})
        self.assertEqual(on_one, on_one[:1] * 4)
        for number, sizes in enumerate(([2, 2], [1, 3], [3, 1])):
            kinds, on_two = self.digests(sizes, 29402 + number)
            costs = "; a host of 3 ranks sends 1.5× the bytes: equal hosts of 2, 4 or 8 send least" if 3 in sizes else ""
            self.assertEqual(kinds, {("hierarchical", "the 4 ranks are on 2 hosts" + costs)})
            self.assertEqual(on_two, on_one, f"ranks per host: {sizes}")
        kinds, encrypted = self.digests([2, 2], 29405, ["--encrypt"])
        self.assertEqual(kinds, {("hierarchical", "the 4 ranks are on 2 hosts; data between them are encrypted")})
        self.assertEqual(encrypted, on_one)

    def test_a_host_sends_the_bytes_of_its_plan(self):
        """Headers, messages and acknowledgments are below 5 %; each sum crosses the network once per host."""
        for number, sizes in enumerate(([2, 2], [3, 1])):
            jobs = self.nodes(sizes, "bytes", port=29420 + number)
            output = "".join(job.communicate(timeout=120)[0] for job in jobs)
            self.assertEqual([job.returncode for job in jobs], [0, 0], output)
            shares = [float(share) for share in re.findall(r"sent ([\d.]+) of the plan", self.logs())]
            self.assertEqual(len(shares), 16)  # four per rank
            self.assertGreater(min(shares), 0.99, sizes)
            self.assertLess(max(shares), 1.05, sizes)
            for run in self.folder.glob("run*"):
                shutil.rmtree(run)

    def lost(self, act, port, *options):
        """Ranks 0 and 1 on h0, 2 on h1; returns what the ranks of h0 print after `act`."""
        jobs = self.nodes([2, 1], "forever", port=port, options=options)
        self.wait_for(lambda: len(re.findall("uses hierarchical", self.logs())) == 3, "three ranks that sum")
        time.sleep(1)
        act()
        # Behind a cut link, rank 2 gives up too, and loses another one.
        self.wait_for(lambda: len(re.findall("lost rank 2", self.logs())) >= 2, "two ranks that give up")
        for job in jobs:
            job.kill()
            job.stdout.close()
            job.wait()
        text = self.logs()
        return re.findall(r"lost rank (\d+) after ([\d.]+) s: (.*)", text)

    def program_on(self, host):
        """The process of a rank on a host, by its network namespace."""
        wanted = subprocess.run(["on", host, "readlink", "/proc/self/ns/net"], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.strip()
        for pid in self.processes():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command[0] == PROGRAM.encode() and os.readlink(f"/proc/{pid}/ns/net") == wanted:
                return pid
        self.fail(f"no rank on {host}")

    # The limits below are at least ten times what an idle machine needs.

    def test_a_killed_rank_is_named_long_before_the_heartbeat(self):
        lost = self.lost(lambda: os.kill(self.program_on("h1"), signal.SIGKILL), 29410, "--heartbeat", "60s")
        for rank, seconds, text in lost:
            self.assertEqual(rank, "2", text)
            self.assertLess(float(seconds), 10.0, text)
            self.assertIn("has ended", text)

    def test_a_cut_link_is_named_at_the_heartbeat(self):
        def cut():
            subprocess.run(["ip", "link", "set", "h1", "down"], check=True)
            self.addCleanup(subprocess.run, ["ip", "link", "set", "h1", "up"], check=True)

        lost = [each for each in self.lost(cut, 29411) if each[0] == "2"]
        self.assertGreaterEqual(len(lost), 2)
        for _, seconds, text in lost:
            self.assertLess(float(seconds), 30.0, text)  # the heartbeat is 3 s
            self.assertIn("its machine does not answer", text)
            self.assertIn("is lost", text)

    def test_a_stopped_process_is_distinguished_from_a_lost_machine(self):
        stopped = []

        def stop():
            stopped.append(self.program_on("h1"))
            os.kill(stopped[0], signal.SIGSTOP)

        lost = self.lost(stop, 29412)
        os.kill(stopped[0], signal.SIGKILL)
        for rank, seconds, text in lost:
            self.assertEqual(rank, "2", text)
            self.assertLess(float(seconds), 30.0, text)  # the heartbeat is 3 s
            self.assertIn("its machine answers, its process does not", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
