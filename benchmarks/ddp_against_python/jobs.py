"""Jobs that take turns: each rank is a process pinned to one core; a line tells it the number of steps and the way."""

import os
import select
import socket
import subprocess

LIMIT = 300  # seconds to wait for an answer


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    def __init__(self, name, command, ranks):
        self.name = name
        cores = sorted(os.sched_getaffinity(0))
        place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if name == "lockstep":  # as `lockstep run` does
            place |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "9223372036854775807",
                      "MIMALLOC_PURGE_DELAY": "-1"}
        self.ranks = [self.start(command, place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                                 cores[rank % len(cores)]) for rank in range(ranks)]

    def start(self, command, place, core):
        return subprocess.Popen(["taskset", "-c", str(core), *command], env=os.environ | place,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, way, steps):
        """Seconds per step on the slowest rank, and rank 0's last loss."""
        told = self.ranks[:1] if way in ("single", "own") else self.ranks
        for rank in told:
            rank.stdin.write(f"{way} {steps}\n")
            rank.stdin.flush()
        answers = [self.answer(number, rank) for number, rank in enumerate(told)]
        return max(seconds for seconds, _ in answers) / steps, answers[0][1]

    def answer(self, number, rank):
        ready, _, _ = select.select([rank.stdout], [], [], LIMIT)
        words = rank.stdout.readline().split() if ready else []
        if len(words) != 2:
            self.end()
            why = f"ended with code {rank.poll()}" if ready else f"did not answer within {LIMIT} s"
            raise SystemExit(f"rank {number} of {self.name} {why}; its output, if any, is above")
        return float(words[0]), float(words[1])

    def end(self):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(timeout=20)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
