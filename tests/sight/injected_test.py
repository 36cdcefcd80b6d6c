"""Faults that are injected into a real job: the analysis names the cause and the rank, and its advice, followed,
gives at least half of the gain that it promises."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP, INJECTED = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Quota:
    """A cgroup that may use `processors` of processor time."""

    def __init__(self, processors):
        is_v1 = (CGROUPS / "cpu").is_dir()
        self.path = (CGROUPS / "cpu" if is_v1 else CGROUPS) / f"lockstep-test-{os.getpid()}"
        self.path.mkdir()
        period = 20000
        if is_v1:
            (self.path / "cpu.cfs_period_us").write_text(str(period))
            (self.path / "cpu.cfs_quota_us").write_text(str(int(processors * period)))
        else:
            (self.path / "cpu.max").write_text(f"{int(processors * period)} {period}")

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)


class Injected(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-sight-")
        self.folder = pathlib.Path(self.scratch.name)
        self.jobs = 0

    def tearDown(self):
        self.scratch.cleanup()

    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def job(self, cause, *more, quota=None, network=None):
        self.jobs += 1
        name = f"job-{self.jobs}"
        inside = ["unshare", "--net", "bash", "-ec", f'{network}; exec "$@"', "-"] if network else []
        done = subprocess.run([*inside, LOCKSTEP, "run", "-n", "2", INJECTED, self.folder / name, cause, *more], text=True,
                              capture_output=True, timeout=300, cwd=self.folder,
                              preexec_fn=quota.enter if quota else None)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        line = next(line for line in done.stdout.splitlines() if '"analysis"' in line)
        return json.loads(line[line.index("{"):])

    def expect_advice(self, cause, first, second):
        """`first` runs the job with a fault, `second` without. Returns the result of the first and its advice about
        `cause`, which gave at least half of its gain. Other programs on this machine lengthen single runs, and are a
        fault too, which the analysis names. So both are run up to six times, and of each the fastest run without that
        fault counts, or the fastest of all. If three of the twelve runs were disturbed, the test is skipped."""
        def is_disturbed(run):
            return any(advice["cause"] in ("processor", "steal") for advice in run["analysis"]["advice"])

        faulty, fixed = [], []
        for _ in range(6):
            faulty.append(first())
            fixed.append(second())
            before, after = (min(runs, key=lambda run: (is_disturbed(run), run["ms_per_batch"]))
                             for runs in (faulty, fixed))
            found = [advice for advice in before["analysis"]["advice"] if advice["cause"] == cause]
            gain = 1 - after["ms_per_batch"] / before["ms_per_batch"]
            if found and gain >= found[0]["gain"] / 2:
                self.assertEqual(len(found), 1, before)
                return before, found[0]
        self.assertGreaterEqual(sum(map(is_disturbed, faulty + fixed)), 3,
                                f"{cause}, gain {gain:.3f}: " + json.dumps([before, after], indent=1))
        self.skipTest("other programs use the processors of this machine")

    def expect_split_is_whole(self, result):
        for rank in result["analysis"]["ranks"]:
            self.assertAlmostEqual(sum(rank["split"].values()), rank["step_ms"], delta=0.02 * rank["step_ms"])

    def faulty_and_fixed(self, cause):
        return self.expect_advice(cause, lambda: self.job(cause), lambda: self.job(cause, "fixed"))

    def test_a_slow_loader_on_one_rank_is_not_slow_backward_on_all(self):
        before, advice = self.faulty_and_fixed("data")
        self.assertEqual(advice["rank"], 1)
        self.assertIn("--workers 2", advice["action"])
        self.assertEqual([late["rank"] for late in before["analysis"]["stragglers"]], [1])
        self.expect_split_is_whole(before)

    def test_a_rank_that_computes_longer_is_named(self):
        _, advice = self.faulty_and_fixed("compute")
        self.assertEqual(advice["rank"], 1)

    def test_a_slow_link_is_named(self):
        network = "ip link set lo mtu 1500 up; tc qdisc add dev lo root tbf rate 300mbit burst 64kb latency 50ms"
        if subprocess.run(["unshare", "--net", "bash", "-ec", network], capture_output=True).returncode != 0:
            self.skipTest("emulated hosts need network namespaces (root, or user namespaces) and iproute2")
        self.expect_advice("link", lambda: self.job("link", network=network),
                           lambda: self.job("link", "fixed", network=network))

    def test_tiny_buckets_are_named(self):
        self.faulty_and_fixed("small_buckets")

    def test_a_throttled_cgroup_is_named(self):
        try:
            quota = Quota(0.5)
        except OSError:
            self.skipTest("a quota needs the right to make cgroups")
        try:
            self.expect_advice("throttled", lambda: self.job("throttled", quota=quota), lambda: self.job("throttled"))
        finally:
            quota.remove()

    def test_a_full_disk_is_named(self):
        train = [LOCKSTEP, "train", "gpt", "--data", "words.txt", "-n", "2", "--run", "run", "--layers", "1", "--width",
                 "32", "--heads", "2", "--context", "32", "--batch", "2", "--eval-every", "1000st", "--sample-tokens", "0",
                 "--save-every", "5st", "--max-restarts", "0"]
        (self.folder / "words.txt").write_text("one two three four five six seven eight nine ten\n" * 400)
        subprocess.run([*train, "--steps", "5"], cwd=self.folder, check=True, capture_output=True, timeout=300)
        # The checkpoints move to a disk that has room for one more and a half.
        size = sum(file.stat().st_size for file in (self.folder / "run/checkpoints").rglob("*") if file.is_file())
        script = (f"mount -t tmpfs -o size={int(2.5 * size / 1024) + 64}k none small || exit 77; "
                  "cp -r run/checkpoints/. small/; mount --bind small run/checkpoints || exit 77; exec \"$@\"")
        (self.folder / "small").mkdir()
        done = subprocess.run(["unshare", "--mount", "bash", "-c", script, "-", *train, "--steps", "60"],
                              cwd=self.folder, text=True, capture_output=True, timeout=300)
        if done.returncode in (1, 77) and "mount" in done.stderr + done.stdout and "unshare" in done.stderr:
            self.skipTest("a small disk needs the right to mount (root, or user namespaces)")
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        failed = [row for row in rows if row.get("event") == "save_failed"]
        self.assertEqual(len(failed), 1, done.stdout + done.stderr)
        self.assertIn("No space left on device", failed[0]["text"])
        self.assertEqual(failed[0]["rank"], 0)

    def test_the_rows_of_the_file_give_the_same_figures(self):
        result = self.job("none")
        rows = [json.loads(line) for line in (self.folder / "job-1" / "metrics.jsonl").read_text().splitlines()]
        ranks = [row for row in rows if row["kind"] == "rank"]
        self.assertEqual([(row["step"], row["rank"]) for row in ranks],
                         [(step, rank) for step in range(10, 61, 10) for rank in range(2)])
        parts = ["data_wait", "forward", "backward", "exposed", "optimizer", "evaluation", "checkpoint", "other"]
        for row in ranks:
            self.assertAlmostEqual(sum(row[part + "_ms"] for part in parts), row["step_ms"],
                                   delta=0.02 * row["step_ms"])
            self.assertLessEqual(row["p50_ms"], row["p95_ms"])
            self.assertLessEqual(row["p95_ms"], row["max_ms"])
            self.assertGreater(row["rss_bytes"], 1e7)
            self.assertGreater(row["cpu_ms"], 0)
        mean = sum(row["step_ms"] for row in ranks[2:]) / len(ranks[2:])  # without the first interval
        self.assertAlmostEqual(result["analysis"]["step_ms"], mean, delta=0.001 * mean)
        self.assertTrue(any(row["kind"] == "bucket" for row in rows))


if __name__ == "__main__":
    unittest.main(verbosity=2)
