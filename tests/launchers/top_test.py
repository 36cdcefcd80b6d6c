"""`lockstep top` and the failure report against what the processes really do: /proc, SIGSTOP, SIGKILL, a terminal."""

import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest

FOREVER = "1000000"


class Top(JobTest):
    def top(self, *arguments, code=0):
        done = subprocess.run([LOCKSTEP, "top", *arguments], cwd=self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def ranks(self):
        return json.loads(self.top("run", "--json"))["ranks"]

    def start_steps(self, count, last):
        job = self.start(LOCKSTEP, "run", "-n", str(count), "--no-pin", "--run-dir", "run", PRINT_WORLD, "steps", last)
        self.workers_by_rank = self.wait_for_workers(count)
        self.wait_for(lambda: all((rank["step"] or 0) > 3 for rank in self.ranks()), "step 3 of every rank")
        return job

    def test_it_shows_the_processes_of_a_running_job(self):
        job = self.start_steps(3, FOREVER)
        before = self.ranks()
        self.assertEqual({rank["rank"]: rank["pid"] for rank in before}, self.workers_by_rank)
        self.assertEqual({rank["state"] for rank in before}, {"running"})
        self.assertLessEqual({rank["part"] for rank in before}, {"forward", "exposed", "other"})
        self.assertEqual({rank["call"]["kind"] for rank in before}, {"barrier"})
        steps = [rank["step"] for rank in before]
        self.assertLessEqual(max(steps) - min(steps), 1)  # a barrier per step
        time.sleep(1.5)  # the launcher measures memory once per second
        after = self.ranks()
        for old, new in zip(before, after):
            self.assertGreater(new["step"], old["step"] + 10)
            pages = pathlib.Path(f"/proc/{new['pid']}/statm").read_text().split()[1]
            resident = int(pages) * os.sysconf("SC_PAGESIZE")
            self.assertLess(abs(new["memory_bytes"] - resident), 0.2 * resident)
            self.assertGreater(new["steps_per_second"], 5)
        self.assertIn("3 ranks, running for 0:00:", self.top("run"))
        job.terminate()
        job.communicate(timeout=60)
        self.assertIn("this is its last state", self.top("run"))
        self.assertEqual({rank["state"] for rank in self.ranks()}, {"ended"})

    def test_a_stopped_rank_is_shown_and_named_as_the_one_that_others_wait_for(self):
        job = self.start_steps(3, FOREVER)
        os.kill(self.workers_by_rank[1], signal.SIGSTOP)
        self.wait_for(lambda: [rank["state"] for rank in self.ranks()] == ["running", "stopped", "running"],
                      "the stopped rank", limit=10)
        self.wait_for(lambda: "rank 1 is in call" in self.top("run"), "the line about rank 1", limit=20)
        os.kill(self.workers_by_rank[1], signal.SIGCONT)
        self.wait_for(lambda: {rank["state"] for rank in self.ranks()} == {"running"}, "all running", limit=10)
        job.terminate()
        job.communicate(timeout=60)

    def test_the_report_says_where_a_killed_rank_was(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--no-pin", "--run-dir", "run", PRINT_WORLD, "steps", "7")
        workers = self.wait_for_workers(2)
        self.wait_for(lambda: all(rank["bucket"] == 4 for rank in self.ranks()), "bucket 4")
        os.kill(workers[1], signal.SIGKILL)
        output = job.communicate(timeout=90)[0]
        self.assertEqual(job.returncode, 128 + signal.SIGKILL, output)
        self.assertIn("it was at: step 7, backward, bucket 4\n", output)
        end = json.loads((self.folder / "run" / "end.json").read_text())
        self.assertEqual(end["culprit"]["where"], "step 7, backward, bucket 4")
        self.assertIn("SIGKILL", self.top("run"))

    def test_a_restart_begins_with_new_pages(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--no-pin", "--max-restarts", "1", "--run-dir", "run", PRINT_WORLD,
                         "steps", "5")
        workers = self.wait_for_workers(2)
        self.wait_for(lambda: all(rank["bucket"] == 4 for rank in self.ranks()), "bucket 4")
        os.kill(workers[0], signal.SIGKILL)
        self.wait_for(lambda: json.loads(self.top("run", "--json"))["restarts"] == 1, "the second round")
        self.wait_for(lambda: all(rank["bucket"] == 4 for rank in self.ranks()), "bucket 4 again")
        self.assertEqual({rank["rank"]: rank["pid"] for rank in self.ranks()}, self.wait_for_workers(2))
        job.terminate()
        job.communicate(timeout=60)

    def test_a_program_without_init_has_no_step(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--run-dir", "run", "sleep", "60")
        self.wait_for((self.folder / "run" / "pages").is_symlink, "the link")
        self.wait_for(lambda: "no init() yet" in self.top("run"), "both ranks")
        self.assertEqual([rank["step"] for rank in self.ranks()], [None, None])
        job.terminate()
        output = job.communicate(timeout=60)[0]
        self.assertNotIn("it was at", output)

    def test_a_killed_launcher_and_other_folders_are_explained(self):
        job = self.start_steps(2, FOREVER)
        job.kill()
        job.communicate(timeout=60)
        self.assertIn("has ended without leaving a last state", self.top("run", code=2))
        self.assertIn("is not the folder of a run", self.top("elsewhere", code=2))
        self.assertIn("there is no run in runs/", self.top(code=2))
        self.expect_nothing_left()

    def test_64_ranks_are_shown_at_once(self):
        job = self.start(LOCKSTEP, "run", "-n", "64", "--no-pin", "--run-dir", "run", "sleep", "60")
        self.wait_for((self.folder / "run" / "pages").is_symlink, "the link")
        self.wait_for(lambda: all(rank["state"] == "running" for rank in self.ranks()), "64 ranks")
        times = []
        for _ in range(5):
            begin = time.monotonic()
            text = self.top("run", "--once")
            times.append(time.monotonic() - begin)
        print(f"lockstep top of 64 ranks: {1000 * min(times):.0f} ms")
        self.assertEqual(text.count("running"), 64 + 1)
        self.assertLess(min(times), 1.0)  # the bar is 0.1 s on an idle machine
        job.terminate()
        job.communicate(timeout=60)

    def test_on_a_terminal_the_view_is_updated_until_q(self):
        job = self.start_steps(2, FOREVER)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        before = termios.tcgetattr(theirs)
        view = subprocess.Popen([LOCKSTEP, "top", "run", "--interval", "100ms"], cwd=self.folder,
                                env={**self.environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs)
        shown = b""
        end = time.monotonic() + 20
        while shown.count(b"\x1b[H") < 5 and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536)
        self.assertIsNone(view.poll(), shown)
        os.write(ours, b"q")
        while view.poll() is None and time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536)
        self.assertEqual(view.wait(timeout=10), 0)
        frames = shown.split(b"\x1b[H")
        self.assertGreater(len(frames), 5, shown)
        self.assertIn(b"2 ranks, running for", frames[1])
        self.assertIn(b"\x1b[?1049l", frames[-1])  # the normal screen again
        self.assertEqual(termios.tcgetattr(theirs), before)
        self.assertEqual(len(self.workers()), 2)  # the run continues
        job.terminate()
        job.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
