"""Ranks of two emulated hosts whose network or machine fails, while they are idle or data are in flight: within the
heartbeat every survivor gives up and names a rank that it cannot reach. None continues, none has a wrong sum.

Run inside `hosts 16`, eight pairs of hosts: this process is in the box and reaches the hosts with `on h0 …`. Ranks are
started without `lockstep run`, which would end them too. With LOCKSTEP_SOAK_SEED, all faults hit both kinds of groups while
data are in flight, otherwise one kind each.
"""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from job_under_test import JobTest

PROGRAM = os.environ["LOCKSTEP_COLLECTIVES_OVER_HOSTS"]
HEARTBEAT = 2.0
MARGIN = 10.0  # beyond the heartbeat; an idle machine needs 0.3 s
FLAT, HIERARCHICAL = [1, 1], [2, 1]  # ranks per host


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


# Faults of the second host of a case. They return the command that repairs it, or None.

def cut(case):
    run("ip", "link", "set", case.hosts[-1], "down")  # its port in the bridge
    return ["ip", "link", "set", case.hosts[-1], "up"]


def one_way_cut(case):
    """Nothing arrives at the first host. The bridge drops it, so that the sender's kernel does not notice."""
    run("tc", "qdisc", "add", "dev", case.hosts[0], "root", "tbf", "rate", "8bit", "burst", "1", "latency", "1ms")
    return ["tc", "qdisc", "del", "dev", case.hosts[0], "root"]


def power_off(case):
    run("ip", "link", "set", case.hosts[-1], "down")
    os.kill(int(pathlib.Path(f"/media/{case.hosts[-1]}").read_text()), signal.SIGKILL)  # and all that runs there


def half_open(case):
    """The second host loses its connections while nothing reaches it. Then it refuses what arrives for them."""
    run("ip", "link", "set", case.hosts[-1], "down")
    os.kill(case.process_of(case.size - 1), signal.SIGKILL)
    # The kernel would tell the first host as soon as it can.
    run("on", case.hosts[-1], "ss", "--kill", "--tcp")
    run("ip", "link", "set", case.hosts[-1], "up")


# What a survivor says of the rank that it has lost.
WORDS = {cut: "its machine does not answer", one_way_cut: "its machine does not answer",
         power_off: "its machine does not answer", half_open: "has ended"}


class Case:
    """The ranks on a pair of hosts, and a fault of the second host, which has the last rank."""

    pairs = [(f"h{2 * pair}", f"h{2 * pair + 1}") for pair in range(8)]

    def __init__(self, test, fault, sizes, is_busy):
        self.test, self.fault, self.sizes, self.is_busy, self.size = test, fault, sizes, is_busy, sum(sizes)
        first, second = self.pair = self.pairs.pop(0)
        self.hosts = [first] * sizes[0] + [second] * sizes[1]  # by rank
        self.name = f"{fault.__name__}-{'busy' if is_busy else 'idle'}-{'x'.join(map(str, sizes))}"
        self.folder = test.folder / self.name
        self.folder.mkdir()
        self.end_of_computation = self.folder / "end"
        what = ["forever"] if is_busy else ["idle", str(self.end_of_computation)]
        for rank, host in enumerate(self.hosts):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(self.size), "MASTER_ADDR": first, "MASTER_PORT": "29400",
                         "LOCKSTEP_HEARTBEAT": str(HEARTBEAT), "LOCKSTEP_SECRET_FILE": str(test.secret)}
            with open(self.folder / str(rank), "w", encoding="utf-8") as output:
                job = subprocess.Popen(["on", host, PROGRAM, *what], cwd=test.folder, stdout=output,
                                       stderr=subprocess.STDOUT, env={**test.environment, **variables})
            test.addCleanup(job.wait)
        kind = "tcp" if sizes == FLAT else "hierarchical"
        self.wait_for_ranks(range(self.size), f"uses {kind}")

    def output(self, rank):
        return (self.folder / str(rank)).read_text(errors="replace")

    def wait_for_ranks(self, ranks, text):
        self.test.wait_for(lambda: all(text in self.output(rank) for rank in ranks), f"{self.name}: '{text}'")

    def process_of(self, rank):
        wanted = {f"RANK={rank}".encode(), f"MASTER_ADDR={self.hosts[0]}".encode()}
        for pid in self.test.processes():
            process = pathlib.Path(f"/proc/{pid}")
            if (process / "cmdline").read_bytes().startswith(PROGRAM.encode() + b"\0"):
                if wanted <= set((process / "environ").read_bytes().split(b"\0")):
                    return pid
        return self.test.fail(f"{self.name}: rank {rank} does not run")

    def strike(self):
        self.struck = time.monotonic()
        self.repair = self.fault(self)

    def expect_the_end(self):
        survives_all = self.fault in (cut, one_way_cut)
        survivors = range(self.size if survives_all else self.size - 1)
        waiting = [rank for rank in survivors if self.is_busy or rank % 2 == 0]
        self.wait_for_ranks(waiting, "gave up")
        ends = [self.expect_loss(rank, self.struck, HEARTBEAT + MARGIN) for rank in waiting]
        # The others have called nothing since, and learn it in their next call.
        called = time.monotonic()
        self.end_of_computation.touch()
        self.wait_for_ranks(survivors, "gave up")
        ends += [self.expect_loss(rank, called, MARGIN) for rank in survivors if rank not in waiting]
        self.test.assertLessEqual(max(ends) - min(ends), 1, f"{self.name}: numbers of completed calls")
        for rank in range(self.size):
            self.test.assertNotRegex(self.output(rank), "continues|wrong sum", self.name)

    def expect_loss(self, rank, since, limit):
        """Returns the number of calls that the rank has completed."""
        output = f"{self.name}, rank {rank}:\n{self.output(rank)}"
        lost, words = re.search(r"lost rank (\d+) after .* s: (.*)", output).groups()
        at, calls = re.search(r"gave up at ([\d.]+) after (\d+) calls", output).groups()
        self.test.assertNotEqual(self.hosts[int(lost)], self.hosts[rank], output)
        self.test.assertRegex(words, WORDS[self.fault], output)
        self.test.assertGreater(float(at), since, output)
        self.test.assertLess(float(at), since + limit, output)
        return int(calls)

    def clear(self):
        if self.repair:
            run(*self.repair)
        if self.fault is not power_off:
            self.pairs.append(self.pair)


class NetworkFaults(JobTest):
    def setUp(self):
        super().setUp()
        self.secret = self.folder / "secret"
        self.secret.write_text("5" * 64 + "\n")
        self.secret.chmod(0o600)

    def check(self, *faults, is_busy):
        cases = [Case(self, fault, sizes, is_busy) for fault, sizes in faults]
        time.sleep(0.5)  # the ranks compute sums, or are silent
        for case in cases:
            case.strike()
        for case in cases:
            case.expect_the_end()
            case.clear()

    def test_idle_ranks(self):
        self.check(*((fault, sizes) for fault in (cut, one_way_cut, power_off, half_open)
                     for sizes in (FLAT, HIERARCHICAL)), is_busy=False)

    def test_ranks_with_data_in_flight(self):
        self.check((cut, HIERARCHICAL), (one_way_cut, FLAT), (power_off, HIERARCHICAL), (half_open, FLAT), is_busy=True)
        if "LOCKSTEP_SOAK_SEED" in os.environ:
            self.check((cut, FLAT), (one_way_cut, HIERARCHICAL), (power_off, FLAT), (half_open, HIERARCHICAL),
                       is_busy=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
