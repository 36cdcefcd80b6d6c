"""The end of a job: signals at any moment of its start, full disks, closed descriptors, stopped supervisors. Report and
exit code must not depend on any of them."""

import datetime
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import time
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest


class Endings(JobTest):
    def test_a_signal_during_the_start_reaches_every_rank(self):
        starts = 200 if "LOCKSTEP_SOAK_SEED" in os.environ else 40
        moments = random.Random(1)
        slowest = 0.0
        for number in range(starts):
            job = self.start(LOCKSTEP, "run", "-n", "4", "--run-dir", f"start-{number}", "sleep", "60")
            time.sleep(moments.uniform(0.0, 0.03))
            begin = time.monotonic()
            job.send_signal(signal.SIGTERM)
            output = job.communicate(timeout=60)[0]
            # Before its handlers are installed, the launcher dies of it; the default grace period is 30 s.
            self.assertIn(job.returncode, (128 + signal.SIGTERM, -signal.SIGTERM), output)
            slowest = max(slowest, time.monotonic() - begin)
            self.assertLess(slowest, 10, output)
            self.assertNotIn("SIGKILL", output)
        print(f"{starts} starts: SIGTERM ended each job within {slowest:.2f} s")
        self.expect_nothing_left()

    def test_a_full_disk_hides_neither_the_report_nor_the_code(self):
        (self.folder / "disk").mkdir()
        fill = "mount -t tmpfs -o size=256k none disk || exit 77; cd disk; exec \"$@\""
        # The rank fills the disk: neither the rest of its log nor end.json fits.
        script = "echo before; cat /dev/zero > rest 2>/dev/null; i=0; " \
                 "while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo after; exit 3"
        done = subprocess.run(["unshare", "--mount", "bash", "-c", fill, "-", LOCKSTEP, "run", "-n", "1", "--run-dir", "run",
                               "bash", "-c", script], cwd=self.folder, env=self.environment, timeout=60, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode in (1, 77) and ("mount" in done.stdout or "unshare" in done.stdout):
            self.skipTest("a small disk needs the right to mount (root, or user namespaces)")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("after", done.stdout)
        self.assertIn("the log of rank 0 ends here", done.stdout)
        self.assertRegex(done.stdout, r"rank 0\b.*exit code 3")
        self.assertIn("no end.json", done.stdout)

    def test_a_removed_run_folder_hides_neither_the_report_nor_the_code(self):
        script = "rm -rf run; echo gone; exit 3"  # the run folder: end.json cannot be written
        output = self.run_job(LOCKSTEP, "run", "-n", "1", "--run-dir", "run", "sh", "-c", script, code=3)
        self.assertRegex(output, r"rank 0\b.*exit code 3")
        self.assertIn("no end.json", output)
        self.run_job(LOCKSTEP, "run", "-n", "1", "--run-dir", "run", "sh", "-c", "rm -rf run", code=0)

    def test_a_limit_on_file_sizes_ends_the_log_and_nothing_else(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

        script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 4"
        job = subprocess.run([LOCKSTEP, "run", "-n", "1", "bash", "-c", script], cwd=self.folder, timeout=60,
                             env=self.environment, capture_output=True, text=True, preexec_fn=limit)
        self.assertEqual(job.returncode, 4, job.stderr)
        self.assertIn("the log of rank 0 ends here", job.stderr)
        self.assertRegex(job.stderr, r"rank 0\b.*exit code 4")

    def test_closed_descriptors_change_nothing(self):
        for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            line = f'exec "{LOCKSTEP}" run -n 2 sh -c "sleep 0.3; exit 5" {closed}'
            self.run_job("sh", "-c", line, code=5)

    def test_a_reader_that_has_ended_changes_nothing(self):
        read, write = os.pipe()
        os.close(read)
        job = subprocess.run([LOCKSTEP, "run", "-n", "2", "sh", "-c", "echo word; exit 3"], cwd=self.folder, timeout=60,
                             env=self.environment, stdout=write, stderr=write,
                             preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        os.close(write)
        self.assertEqual(job.returncode, 3)

    def test_a_standard_error_that_does_not_block_gets_the_whole_report(self):
        read, write = os.pipe()
        os.set_blocking(write, False)
        script = "i=0; while [ $i -lt 3000 ]; do echo a line to fill the pipe with, number $i; i=$((i+1)); done; exit 3"
        job = subprocess.Popen([LOCKSTEP, "run", "-n", "1", "bash", "-c", script], cwd=self.folder,
                               env=self.environment, stdout=write, stderr=write)
        os.close(write)
        time.sleep(1)  # the pipe is full when the report is printed
        with os.fdopen(read, "r") as pipe:
            output = pipe.read()
        self.assertEqual(job.wait(timeout=60), 3, output)
        self.assertTrue(output.rstrip().splitlines()[-1].startswith("next:"), output[-500:])

    def test_a_stopped_supervisor_delays_no_process(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--grace", "1s", "sleep", "100")
        self.wait_for(lambda: len(self.processes()) >= 5, "both ranks")
        rank = next(pid for pid in self.processes() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        supervisor = int(pathlib.Path(f"/proc/{rank}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(1.5)
        begin = time.monotonic()
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=30)[0]
        self.assertLess(time.monotonic() - begin, 20, output)
        self.assertRegex(output, rf"supervisor process {supervisor} of rank \d is stopped")
        self.expect_nothing_left()

    def test_the_report_starts_with_the_message_of_an_uncaught_exception(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "2", PRINT_WORLD, "throw", "1", code=128 + signal.SIGABRT)
        block = output[output.rindex("lockstep | rank 1"):].splitlines()
        self.assertEqual(block[1], "error: the shapes do not fit (std::runtime_error)")
        self.assertNotRegex("\n".join(block), r"#\d+ .*(terminate|__cxa_throw)")

    def test_a_rank_that_leaves_the_others_with_code_0_is_named_first(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "3", PRINT_WORLD, "leave", "1", code=1)
        block = output[output.rindex("lockstep |"):].splitlines()
        self.assertRegex(block[0], r"rank 1\b.*exit code 0 while other ranks were still in collectives")
        self.assertRegex(block[1], r"rank [02]\b.*exit code 1")

    def test_a_path_that_does_not_exist_gets_no_second_dot(self):
        output = self.run_job(LOCKSTEP, "run", "./nosuch", code=127)
        self.assertNotIn("././", output)

    def test_ranks_that_never_met_are_ended_at_once(self):
        self.run_job(LOCKSTEP, "run", "-n", "2", "sh", "-c", "[ $RANK = 0 ] && exit 6; sleep 100", code=6)
        ended = [datetime.datetime.fromisoformat(rank["ended"].rstrip("Z")) for rank in self.end_record()["ranks"]]
        # Ranks that have met would have 5 s to report the reason.
        self.assertLess((ended[1] - ended[0]).total_seconds(), 4.5)

    def test_the_survivors_of_a_killed_rank_fail_soon_whatever_the_size_of_their_memory(self):
        each = 4 << 30 if "LOCKSTEP_SOAK_SEED" in os.environ else 64 << 20
        for ranks in (2, 4):
            output = self.run_job(LOCKSTEP, "run", "-n", str(ranks), PRINT_WORLD, "lose", str(each),
                                  code=128 + signal.SIGKILL, limit=300)
            found = re.findall(r"rank \d failed (\d+) ms later with (-?\d+) kB more", output)
            print(f"{ranks} ranks with {each >> 20} MiB each: PeerError after {', '.join(ms for ms, _ in found)} ms")
            self.assertEqual(len(found), ranks - 1, output)
            for milliseconds, kilobytes in found:
                self.assertLess(int(milliseconds), 10_000, output)
                self.assertLess(int(kilobytes) << 10, each // 20, "a copy of the memory")

    def test_many_ranks_need_no_higher_limit_of_descriptors(self):
        ranks, soft = (500, 1024) if "LOCKSTEP_SOAK_SEED" in os.environ else (60, 200)
        job = subprocess.run([LOCKSTEP, "run", "-n", str(ranks), PRINT_WORLD, "reduce"], cwd=self.folder, timeout=300,
                             env=self.environment, capture_output=True, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, 4096)))
        self.assertEqual(job.returncode, 0, job.stderr)
        logs = [log.read_text() for log in self.folder.glob("runs/*/logs/*.log")]
        self.assertEqual(sum(f"sum {ranks * (ranks - 1) // 2}\n" in log for log in logs), ranks)

    def test_programs_that_never_call_init_are_reported(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "2", "true")
        self.assertIn("lockstep::init()", output)
        self.assertNotIn("lockstep::init()", self.run_job(LOCKSTEP, "run", "-n", "2", PRINT_WORLD))


if __name__ == "__main__":
    unittest.main()
