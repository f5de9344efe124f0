"""check.py itself under test: with the real tools standing in for quern everything is the same, and every spoilt byte is found and named."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def check(*args, spoil=""):
    done = subprocess.run([sys.executable, HERE / "check.py", HERE / "standin.py", *args], env=dict(os.environ, QUERN_STANDIN=spoil), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Check(unittest.TestCase):
    small = ("--models", "stories260k", "--outtypes", "f16", "--ftypes", "Q4_0")

    def test_same(self):
        code, said = check(*self.small)
        self.assertEqual(code, 0, said)
        self.assertIn("5 same, 0 different, 2 not offered", said)

    def test_strict(self):
        code, said = check(*self.small, "--only", "run", "--strict")
        self.assertEqual(code, 1, said)
        self.assertIn("2 same, 0 different, 2 not offered", said)

    def test_spoilt_tensor(self):
        code, said = check(*self.small, "--only", "bytes", spoil="spoil-data")
        self.assertEqual(code, 1, said)
        self.assertIn("0 same, 3 different", said)
        self.assertIn("tensors output_norm.weight", said)

    def test_spoilt_key(self):
        code, said = check(*self.small, "--only", "bytes", spoil="spoil-key")
        self.assertEqual(code, 1, said)
        self.assertIn("kv general.file_type", said)

    def test_spoilt_run(self):
        code, said = check(*self.small, "--only", "run", spoil="spoil-run")
        self.assertEqual(code, 1, said)
        self.assertIn("0 same, 2 different", said)
        self.assertRegex(said, r"200 tokens, token \d+ is")

    def test_nothing_compared(self):
        code, said = check(*self.small, spoil="refuse")
        self.assertEqual(code, 1, said)
        self.assertIn("0 same, 0 different", said)


if __name__ == "__main__":
    unittest.main()
