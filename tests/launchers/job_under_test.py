"""Shared by the launcher tests: starts jobs, reads their output, and counts the processes that they leave behind."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

LOCKSTEP = os.environ["LOCKSTEP_COMMAND"]
PRINT_WORLD = os.environ["LOCKSTEP_PRINT_WORLD"]
PYTHON = os.environ.get("LOCKSTEP_PYTHON", sys.executable)
WORLD = re.compile(r"world rank (\d+) of (\d+), local (\d+) of (\d+), node (\d+) of (\d+), hosts (\d+)")
IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
# Variables of a launcher around these tests must not reach the jobs.
CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("LOCKSTEP_", "SLURM_", "OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_", "PMI_",
                              "TORCHELASTIC_"))
         and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}


def worlds(text):
    """The worlds that ranks printed, as sorted tuples of numbers and the string of hosts."""
    return sorted((*map(int, found.groups()[:6]), found[7]) for found in WORLD.finditer(text))


def expected_worlds(nodes, ranks_each):
    size = nodes * ranks_each
    hosts = "".join(str(rank // ranks_each) for rank in range(size))
    return [(rank, size, rank % ranks_each, ranks_each, rank // ranks_each, nodes, hosts) for rank in range(size)]


def free_port():
    """A TCP port that no socket of this host uses, below those that the kernel gives to sockets without a port: the tests
    that run at the same time take theirs from there."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, max(first, 20000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


class JobTest(unittest.TestCase):
    """Each test has its own folder, and a token in the environment of all processes that it starts."""

    def setUp(self):
        # Not in /tmp: every emulated host has its own, and they share all other folders.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job_", dir=os.environ["LOCKSTEP_TEST_FOLDER"]))
        self.token = f"LOCKSTEP_TEST_TOKEN={uuid.uuid4()}"
        self.environment = {**CLEAN, "LOCKSTEP_TEST_TOKEN": self.token.partition("=")[2], "HOME": str(self.folder),
                            "CUDA_VISIBLE_DEVICES": ""}  # many ranks on a machine with one GPU
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.kill_left_over)

    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def start(self, *command, **variables):
        return subprocess.Popen(command, cwd=self.folder, env={**self.environment, **variables}, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_job(self, *command, code=0, limit=60, **variables):
        """Runs `command` to its end; returns its output."""
        job = self.start(*command, **variables)
        try:
            output, _ = job.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            job.kill()
            self.fail(f"{command} did not end within {limit} s; it printed:\n{job.communicate()[0]}")
        self.assertEqual(job.returncode, code, f"{command} printed:\n{output}")
        return output

    def with_free_port(self, run):
        """The first output of `run(port)` that does not say that another program has taken the port meanwhile."""
        for _ in range(5):
            output = run(free_port())
            if not IN_USE.search(output):
                break
        return output

    def processes(self):
        """Ids of all live processes that this test started, by the token in their environment."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.token.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                        found.append(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
        return found

    def expect_nothing_left(self, within=10.0):
        end = time.monotonic() + within
        while self.processes() and time.monotonic() < end:
            time.sleep(0.02)
        left = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.processes()}
        self.assertEqual(left, {}, f"processes outlived the job by {within} s")

    def kill_left_over(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, condition, what, limit=60):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if result := condition():
                return result
            time.sleep(0.02)
        self.fail(f"{what} did not happen within {limit} s")

    def workers(self, program="print_world"):
        """Process ids of the ranks, by rank."""
        ranks = {}
        for pid in self.processes():
            try:
                if pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name == program:
                    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    rank = [line for line in environment if line.startswith(b"RANK=")]
                    if rank:
                        ranks[int(rank[0][5:])] = pid
            except OSError:
                continue
        return ranks

    def wait_for_workers(self, count):
        return self.wait_for(lambda: w if len(w := self.workers()) == count else None, f"{count} ranks")

    def end_record(self):
        records = list(self.folder.glob("runs/*/end.json"))
        self.assertEqual(len(records), 1, records)
        return json.loads(records[0].read_text())
