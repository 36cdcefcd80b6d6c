"""Three emulated hosts, one behind 100 Mbit/s: the analysis names the rank on it, by the rates that the kernels count.

Run inside `hosts 3`: this process reaches the hosts with `on h0 …`.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP, INJECTED = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
SLOW = 2  # the host, and its rank


def limit(*where):
    """Limits what a device sends to 100 Mbit/s. Returns whether that is allowed."""
    words = ["tc", "qdisc", "add", "dev", where[-1], "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "100ms"]
    try:
        return subprocess.run([*where[:-1], *words], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class SlowHost(unittest.TestCase):
    def test_the_rank_behind_the_slow_link_is_named(self):
        # Not in /tmp: every emulated host has its own.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="slow_", dir=os.environ["LOCKSTEP_TEST_FOLDER"]))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        # What the host sends, and what it receives.
        if not limit("on", f"h{SLOW}", "eth0") or not limit(f"h{SLOW}"):
            print("SKIPPED: test_the_rank_behind_the_slow_link_is_named: emulated hosts need network namespaces (root, or "
                  "user namespaces) and iproute2", flush=True)
            self.skipTest("no tc")
        environment = {**os.environ, "HOME": str(folder), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        jobs = [subprocess.Popen(["on", f"h{node}", LOCKSTEP, "run", "--nnodes", "3", "--node-rank", str(node), "--rendezvous",
                                  "h0:29470", "-n", "1", "--heartbeat", "60s", INJECTED, folder / "run", "hosts"],
                                 cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for node in (2, 1, 0)]
        outputs = [job.communicate(timeout=300)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0, 0, 0], "\n----\n".join(outputs))
        line = next(line for line in outputs[-1].splitlines() if '"analysis"' in line)
        advice = json.loads(line[line.index("{"):])["analysis"]["advice"]
        links = [each for each in advice if each["cause"] == "link"]
        self.assertEqual([each["rank"] for each in links], [SLOW], json.dumps(advice, indent=1))
        self.assertIn(f"the links of rank {SLOW} move", links[0]["text"])

        rows = [json.loads(row) for row in (folder / "run/metrics.jsonl").read_text().splitlines()]
        ranks = [row for row in rows if row["kind"] == "rank" and row["step"] > 10]
        self.assertTrue(ranks)
        for row in ranks:
            self.assertLess(row["slowest_peer_mb_per_s"], 14, row)  # 12.5, and the burst of the limit
            if row["rank"] != SLOW:
                self.assertEqual(row["slowest_peer"], SLOW, row)


if __name__ == "__main__":
    unittest.main(verbosity=2)
