"""`lockstep doctor` against machines that are really wrong: a small /dev/shm, few descriptors, no loopback, another
LibTorch, a program that hangs; and the metrics that the launcher serves, against promtool."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest

SECRET = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4"


class Doctor(JobTest):
    def doctor(self, *arguments, before=(), command=LOCKSTEP, **variables):
        done = subprocess.run([*before, command, "doctor", *arguments, "--json"], cwd=self.folder, text=True, timeout=120,
                              env={**self.environment, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, int(report["verdict"] == "red"), done.stdout)
        return {line["name"]: line for line in report["nodes"][0]["checks"]}, report

    def expect_red(self, line, found, fix):
        self.assertEqual(line["verdict"], "red", line)
        self.assertRegex(line["found"], found)
        self.assertIn(fix, line["fix"])

    def in_namespaces(self, kinds, script):
        """A command in front of another one: runs `script` as root of new namespaces first."""
        before = ["unshare", f"-r{kinds}", "sh", "-c", f'{script} && exec "$@"', "sh"]
        if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
            self.skipTest("a small disk needs the right to mount (root, or user namespaces)")
        return before

    def test_everything_in_less_than_a_minute(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        begin = time.monotonic()
        lines, report = self.doctor(TMPDIR=str(temporary))
        took = time.monotonic() - begin
        print(f"lockstep doctor: {took:.1f} s")
        for name in ("LibTorch", "GPUs", "NCCL", "MPI", "processor", "NUMA", "cgroup quota", "memory", "huge pages", "swap",
                     "/dev/shm", "descriptors", "core files", "disk", "clock", "ports", "secret file", "rates"):
            self.assertIn(name, lines)
        for trial in ("all-reduce", "training"):
            self.assertEqual(lines[trial]["verdict"], "green", lines[trial])
        self.assertIn("sum exact", lines["all-reduce"]["found"])
        self.assertIn("20 steps, replicas bit-identical", lines["training"]["found"])
        self.assertTrue(all(line["fix"] for line in lines.values() if line["verdict"] != "green"), lines)
        self.assertLess(report["seconds"], 60)
        self.assertEqual(list(temporary.iterdir()), [])  # it leaves nothing behind
        self.assertFalse((self.folder / ".cache" / "lockstep").exists())
        self.expect_nothing_left()

    def test_a_small_shared_memory_is_red(self):
        before = self.in_namespaces("m", "mount -t tmpfs -o size=32m small /dev/shm")
        self.expect_red(self.doctor("--quick", before=before)[0]["/dev/shm"], "32 MiB free of 32 MiB", "--shm-size")

    def test_a_node_without_loopback_is_red(self):
        before = self.in_namespaces("n", "true")  # the interface of a new network is down
        self.expect_red(self.doctor("--quick", before=before)[0]["ports"], r"127\.0\.0\.1", "ip link set lo up")

    def test_few_descriptors_are_red(self):
        before = ["sh", "-c", 'ulimit -n 100 && exec "$@"', "sh"]
        self.expect_red(self.doctor("--quick", "-n", "64", before=before)[0]["descriptors"], "64 ranks need 512", "ulimit")

    def programs(self, doctor):
        """A folder with this command and another lockstep-doctor."""
        folder = self.folder / "bin"
        folder.mkdir()
        shutil.copy(LOCKSTEP, folder / "lockstep")
        (folder / "lockstep-doctor").write_text(f"#!/bin/sh\n{doctor}\n")
        (folder / "lockstep-doctor").chmod(0o755)
        return str(folder / "lockstep")

    def test_another_libtorch_is_red(self):
        command = self.programs("echo loaded: 2.1.0; echo library: /opt/old")
        self.expect_red(self.doctor("--quick", command=command)[0]["LibTorch"], "2.1.0 is loaded from /opt/old",
                        "LD_LIBRARY_PATH")

    def test_a_program_that_hangs_is_killed_and_red(self):
        begin = time.monotonic()
        line = self.doctor("--quick", command=self.programs("sleep 300"))[0]["LibTorch"]
        self.expect_red(line, "did not end within 15 s", "tools/bootstrap")
        self.assertLess(time.monotonic() - begin, 60)

    def test_no_secret_is_printed(self):
        folder = self.folder / ".config" / "lockstep"
        folder.mkdir(parents=True)
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o644)
        lines, report = self.doctor("--quick", LOCKSTEP_TOKEN=SECRET, AWS_SECRET_ACCESS_KEY=SECRET)
        self.expect_red(lines["secret file"], "mode 644", "chmod 600")
        self.assertNotIn(SECRET[:8], json.dumps(report))

    def test_under_a_launcher_one_rank_reports_for_its_node(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "2", "--allow-shared-gpu", LOCKSTEP, "doctor", "--quick")
        self.assertEqual(output.count("LibTorch"), 1, output)
        self.assertRegex(output, r"\d+ red, \d+ yellow, \d+ green")


class Metrics(JobTest):
    def start_with_metrics(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--no-pin", "--metrics-port", "0", "--run-dir", "run", PRINT_WORLD,
                         "steps", "5")
        port = None
        while port is None:
            line = job.stdout.readline()
            self.assertNotEqual(line, "", "the launcher ended without a line about metrics")
            if found := re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", line):
                port = int(found[1])
        return job, port

    def get(self, port, path="/metrics", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def test_the_state_of_the_ranks_and_the_last_rows_are_served_to_prometheus(self):
        job, port = self.start_with_metrics()
        self.wait_for(lambda: re.findall(r"^lockstep_rank_step\{.*\} 5$", self.get(port), re.M)[1:], "step 5 of both ranks")
        rows = [{"kind": "start"}, {"kind": "train", "step": 10, "time": 1.0, "loss": 5.25, "step_ms": 125.0, "mfu": None},
                {"kind": "eval", "step": 10, "time": 1.0, "loss": 3.5, "sample": "To be"}]
        (self.folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        text = self.get(port)
        self.assertRegex(text, r'(?m)^lockstep_rank_up\{rank="1",node="0",host="[^"]+"\} 1$')
        self.assertRegex(text, r'(?m)^lockstep_rank_part_age_seconds\{.*part="backward"\} \d')
        self.assertIn("\nlockstep_train_loss 5.25\n", text)
        self.assertIn("\nlockstep_train_step_seconds 0.125\n", text)
        self.assertIn("\nlockstep_eval_loss 3.5\n", text)
        for path, headers, code in (("/", {}, 404), ("/metrics", {"Host": "evil.example"}, 403)):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get(port, path, **headers)
            self.assertEqual(refused.exception.code, code)
        self.check_with_promtool(text)
        os.kill(self.workers()[1], signal.SIGSTOP)
        self.wait_for(lambda: re.search(r'(?m)^lockstep_rank_stopped\{rank="1".*\} 1$', self.get(port)), "the stopped rank")
        os.kill(self.workers()[1], signal.SIGCONT)
        job.terminate()
        job.communicate(timeout=60)
        with self.assertRaises(urllib.error.URLError):
            self.get(port)

    def check_with_promtool(self, text):
        if shutil.which("promtool") is None:
            print("SKIPPED: promtool: promtool is not installed; `tools/bootstrap test` installs it", flush=True)
            return
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=60)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertEqual(checked.stderr.strip(), "", text)

    def test_it_is_off_by_default_and_on_loopback_only(self):
        job, port = self.start_with_metrics()
        listening = [line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
                     if line.split()[3] == "0A"]
        self.assertIn(f"0100007F:{port:04X}", listening)
        self.assertNotIn(f"00000000:{port:04X}", listening)
        job.terminate()
        job.communicate(timeout=60)
        output = self.run_job(LOCKSTEP, "run", "-n", "1", "--run-dir", "other", "true")
        self.assertNotIn("metrics at", output)

    def test_a_port_in_use_is_an_error(self):
        job, port = self.start_with_metrics()
        output = self.run_job(LOCKSTEP, "run", "-n", "1", "--metrics-port", str(port), "--run-dir", "other", "true",
                              code=125)
        self.assertIn(str(port), output)
        job.terminate()
        job.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
