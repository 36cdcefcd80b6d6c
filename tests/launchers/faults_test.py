"""Ranks and launchers that fail, are killed, are stopped or ignore signals: correct message and exit code, no process left."""

import base64
import os
import pathlib
import re
import signal
import threading
import time
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest, worlds


class Faults(JobTest):
    def test_a_rank_that_exits_is_named_with_its_code_last_lines_and_record(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "3", PRINT_WORLD, "exit", "7", "1", code=7)
        block = output[output.rindex("lockstep |"):]  # the last thing printed
        self.assertRegex(block, r"rank 1\b.*exit code 7")
        self.assertIn("world rank 1 of 3", block)
        record = self.end_record()
        self.assertEqual((record["cause"], record["exit_code"]), ("rank_failed", 7))
        self.expect_nothing_left()

    def test_a_crash_shows_the_function_it_happened_in(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "2", PRINT_WORLD, "crash", "1", code=128 + signal.SIGSEGV)
        self.assertIn("SIGSEGV", output)
        self.assertRegex(output, r"#\d+ .*dereference_null")
        self.expect_nothing_left()

    def test_each_rank_that_is_killed_is_named(self):
        for victim in range(3):
            job = self.start(LOCKSTEP, "run", "-n", "3", "--grace", "2s", PRINT_WORLD, "wait")
            os.kill(self.wait_for_workers(3)[victim], signal.SIGKILL)
            output = job.communicate(timeout=30)[0]
            self.assertEqual(job.returncode, 128 + signal.SIGKILL, output)
            self.assertRegex(output, rf"rank {victim}\b.*SIGKILL")
            self.expect_nothing_left()

    def test_when_the_launcher_is_killed_ranks_and_their_children_end_within_two_seconds(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "bash", "-c", f"sleep 100 & {PRINT_WORLD} wait; wait")
        self.wait_for_workers(2)
        job.kill()
        job.wait()
        self.expect_nothing_left(within=2)

    def test_a_stopped_rank_is_named_and_named_again_when_it_continues(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", PRINT_WORLD, "wait")
        victim = self.wait_for_workers(2)[1]
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(job.stdout))
        reader.start()
        os.kill(victim, signal.SIGSTOP)
        self.wait_for(lambda: any(re.search(rf"rank 1\b.*stopped.*process {victim}", line) for line in lines), "the notice")
        os.kill(victim, signal.SIGCONT)
        self.wait_for(lambda: any(re.search(rf"rank 1\b.*continues.*process {victim}", line) for line in lines), "the notice")
        job.send_signal(signal.SIGTERM)
        job.wait(timeout=30)
        reader.join()
        self.expect_nothing_left()

    def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--grace", "1s", PRINT_WORLD, "ignore", "1")
        self.wait_for_workers(2)
        time.sleep(0.5)
        begin = time.monotonic()
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=30)[0]
        self.assertLess(time.monotonic() - begin, 10, output)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, output)
        self.expect_nothing_left()

    def test_a_second_ctrl_c_kills_at_once(self):
        job = self.start(LOCKSTEP, "run", "-n", "2", "--grace", "60s", "bash", "-c", "trap '' INT TERM; sleep 100")
        self.wait_for(lambda: len(self.processes()) >= 5, "both ranks")
        time.sleep(0.3)
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=10)
        self.assertEqual(job.returncode, 128 + signal.SIGINT)
        self.expect_nothing_left()

    def test_failed_ranks_are_restarted_and_restarts_are_counted(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "2", "--max-restarts", "2", PRINT_WORLD, "fail-once", "1")
        self.assertIn("restart 1 of 2", output)
        self.assertEqual(self.end_record()["restarts"], 1)
        self.expect_nothing_left()

    def test_a_missing_program_is_code_127_and_one_that_is_not_executable_126(self):
        self.assertIn("./nowhere", self.run_job(LOCKSTEP, "run", "-n", "2", "./nowhere", code=127))
        (self.folder / "text").write_text("no program")
        self.assertIn("./text", self.run_job(LOCKSTEP, "run", "-n", "2", "./text", code=126))

    def test_a_program_that_a_loader_or_a_shell_did_not_execute_is_not_restarted(self):
        for code in (126, 127):
            output = self.run_job(LOCKSTEP, "run", "-n", "2", "--max-restarts", "2", "sh", "-c", f"exit {code}", code=code)
            self.assertNotIn("restart 1 of 2", output)
            self.assertIn("was not executed, so it is not restarted", output)

    def test_invalid_usage_is_code_2_and_starts_nothing(self):
        self.run_job(LOCKSTEP, "run", "-n", "0", "true", code=2)
        self.run_job(LOCKSTEP, "run", "--grrace", "3", "true", code=2)
        self.assertEqual(list(self.folder.glob("runs/*")), [])

    def test_sixty_four_ranks_work(self):
        output = self.run_job(LOCKSTEP, "run", "-n", "64", "--show-ranks", "63", PRINT_WORLD, limit=600)
        self.assertEqual([w[:2] for w in worlds(output)], [(63, 64)])

    def test_equal_lines_are_folded_with_their_ranks(self):
        for _ in range(10):  # on a busy machine ranks may print further apart than the fold window
            output = self.run_job(LOCKSTEP, "run", "-n", "4", "echo", "the same for all")
            if output.count("the same for all") == 1:
                break
        self.assertEqual(output.count("the same for all"), 1, output)
        self.assertRegex(output, r"0-3.*4x.*the same for all")

    def test_a_flood_is_in_the_files_completely_and_in_order(self):
        megabytes = 200 if "LOCKSTEP_SOAK_SEED" in os.environ else 24
        each = megabytes * 1_000_000 // 8
        self.run_job(LOCKSTEP, "run", "-n", "8", "--run-dir", "flood", PRINT_WORLD, "flood", str(each), limit=120)
        for rank in range(8):
            lines = (self.folder / f"flood/logs/rank-{rank:03}.log").read_text().splitlines()[1:]
            self.assertGreaterEqual(sum(len(line) + 1 for line in lines), each)
            for number, line in enumerate(lines):
                if line != f"rank {rank} line {number:09} of many, to fill the pipe of a slow reader":
                    self.fail(f"rank {rank}, line {number}: {line!r}")

    def test_the_secret_is_in_no_argument_environment_or_log(self):
        # A rank closes the descriptor when it has met the others: this program never calls init().
        job = self.start(LOCKSTEP, "run", "-n", "2", "--run-dir", "run", "sleep", "100")
        self.wait_for(lambda: len(self.processes()) >= 5, "both ranks")
        rank = self.wait_for(lambda: next((pid for pid in self.processes()
                                           if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"), None), "a rank")
        environment = pathlib.Path(f"/proc/{rank}/environ").read_bytes()
        number = int(re.search(rb"LOCKSTEP_SECRET_FD=(\d+)", environment)[1])
        secret = pathlib.Path(f"/proc/{rank}/fd/{number}").read_bytes()
        self.assertGreaterEqual(len(secret), 32)
        places = [pathlib.Path(f"/proc/{pid}/{what}") for pid in self.processes() for what in ("cmdline", "environ")]
        texts = {str(place): place.read_bytes() for place in places}
        job.send_signal(signal.SIGTERM)
        texts["what is printed"] = job.communicate(timeout=30)[0].encode()
        texts |= {str(file): file.read_bytes() for file in (self.folder / "run").rglob("*") if file.is_file()}
        self.assertIn(str(self.folder / "run/end.json"), texts)
        for place, text in texts.items():
            for form in (secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)):
                self.assertNotIn(form, text, place)


if __name__ == "__main__":
    unittest.main()
