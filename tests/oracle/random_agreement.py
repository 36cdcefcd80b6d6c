"""Compares lockstep's random streams with numpy.random.Philox, an independent implementation of the same generator.

    python random_agreement.py <path of the program random_streams>
"""

import os
import random
import subprocess
import sys

try:
    import numpy
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

NUM_STREAMS = 100
NUM_DRAWS = 41  # not a multiple of four: the last block is used in part
TOP = 2**64 - 1


def numpy_draws(seed: int, purpose: int, first: int, second: int) -> list[int]:
    # numpy increments the counter before it computes a block, so it starts one below block 0 of this counter.
    counter = ((second << 128) | (first << 64)) - 1 & (2**256 - 1)
    words = [(counter >> shift) & TOP for shift in (0, 64, 128, 192)]
    generator = numpy.random.Philox(counter=numpy.array(words, numpy.uint64),
                                    key=numpy.array([seed, purpose], numpy.uint64))
    return [int(number) for number in generator.random_raw(NUM_DRAWS)]


def main() -> int:
    rng = random.Random(os.environ.get("LOCKSTEP_SOAK_SEED", 7))
    edges = [0, 1, 2**32 - 1, 2**32, 2**63, TOP]
    for _ in range(NUM_STREAMS):
        key_and_place = [rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(64) for _ in range(4)]
        printed = subprocess.run([sys.argv[1], *map(str, key_and_place), str(NUM_DRAWS)],
                                 check=True, capture_output=True, text=True).stdout
        if [int(line) for line in printed.split()] != numpy_draws(*key_and_place):
            print(f"seed, purpose, first, second = {key_and_place}: lockstep and numpy differ.")
            return 1
    print(f"{NUM_STREAMS} streams of {NUM_DRAWS} numbers are bit-identical to numpy's.")
    return 0


sys.exit(main())
