"""Strangers at the door of a running job: refused, and the job goes on undisturbed."""

import os
import pathlib
import re
import signal
import socket
import struct
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest


class Strangers(JobTest):
    def setUp(self):
        super().setUp()
        self.job = self.start(LOCKSTEP, "run", "-n", "2", PRINT_WORLD, "wait")
        rank = self.wait_for_workers(2)[0]
        store = re.search(rb"LOCKSTEP_STORE=([\d.]+):(\d+)", pathlib.Path(f"/proc/{rank}/environ").read_bytes())
        self.address = (store[1].decode(), int(store[2]))
        self.assertEqual(self.address[0], "127.0.0.1", "on one node nothing listens beyond loopback")

    def tearDown(self):
        self.assertEqual(len(self.workers()), 2, "the ranks must still be there")
        self.job.send_signal(signal.SIGTERM)
        output = self.job.communicate(timeout=30)[0]
        self.assertEqual(self.job.returncode, 128 + signal.SIGTERM, output)
        self.expect_nothing_left()

    def knock(self):
        return socket.create_connection(self.address, timeout=60)

    def expect_closed(self, door):
        door.settimeout(60)  # the server's patience is 5 s
        try:
            while door.recv(4096):
                pass
        except ConnectionError:
            pass

    def test_garbage_is_refused(self):
        for bytes_ in (os.urandom(100), b"GET / HTTP/1.1\r\n\r\n" * 5, b"\0" * 100):
            with self.knock() as door:
                door.sendall(bytes_)
                self.expect_closed(door)

    def test_one_who_does_not_know_the_secret_is_refused(self):
        with self.knock() as door:
            door.sendall(b"LKS1" + os.urandom(32))
            reply = door.recv(64)
            self.assertEqual(len(reply), 64)
            door.sendall(os.urandom(32))
            self.expect_closed(door)

    def test_a_claim_of_four_gigabytes_is_refused(self):
        with self.knock() as door:
            door.sendall(struct.pack("<I", 2**32 - 1) * 40)
            self.expect_closed(door)

    def test_one_who_says_nothing_is_shown_out(self):
        with self.knock() as door:
            door.sendall(b"L")
            self.expect_closed(door)

    def test_two_thousand_at_once_leave_room_for_the_job(self):
        doors = []
        for _ in range(2000):
            try:
                doors.append(self.knock())
            except OSError:
                break
        self.assertGreater(len(doors), 500)
        for door in doors:
            door.close()


if __name__ == "__main__":
    unittest.main()
