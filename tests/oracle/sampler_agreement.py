"""Compares lockstep's `torch` order with SampleShard::stride with torch.utils.data: DistributedSampler and DataLoader.

    python sampler_agreement.py <path of the program dealt_samples>
"""

import os
import random
import subprocess
import sys

try:
    import torch.utils.data as data
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

NUM_CASES = 600


def python_line(size, world, seed, epoch, drop_last, shuffle, batch):
    line = ""
    for rank in range(world):
        sampler = data.DistributedSampler(range(size), num_replicas=world, rank=rank, shuffle=bool(shuffle),
                                          seed=seed, drop_last=bool(drop_last))
        sampler.set_epoch(epoch)
        batches = data.BatchSampler(sampler, batch, drop_last=False)
        line += "/ ".join("".join(f"{sample} " for sample in each) for each in batches) + "| "
    return line


def cases():
    rng = random.Random(os.environ.get("LOCKSTEP_SOAK_SEED", 7))
    for size in range(1, 20):  # also fewer samples than ranks
        for world in (1, 2, 3, 4, 8, 13):
            yield size, world, size, 0, 0, 1, 1
            if size >= world:
                yield size, world, size, 1, 1, 1, 2
    for _ in range(NUM_CASES):
        size, world = rng.choice([rng.randint(1, 50), rng.randint(1, 3000)]), rng.randint(1, 16)
        drop_last = rng.randint(0, 1) if size >= world else 0  # otherwise Python gives empty epochs, lockstep throws
        yield (size, world, rng.choice([0, 1, 42, rng.getrandbits(31), rng.getrandbits(40)]), rng.randint(0, 100),
               drop_last, rng.randint(0, 3) and 1, rng.randint(1, 9))


def main() -> int:
    wanted = list(cases())
    text = "".join(" ".join(map(str, case)) + "\n" for case in wanted)
    printed = subprocess.run([sys.argv[1]], input=text, check=True, capture_output=True, text=True).stdout.split("\n")
    for case, ours in zip(wanted, printed, strict=False):
        theirs = python_line(*case)
        if ours != theirs:
            print(f"size, world, seed, epoch, drop_last, shuffle, batch = {case}:\nlockstep {ours}\ntorch    {theirs}")
            return 1
    if len(printed) != len(wanted) + 1:
        print(f"{len(wanted)} cases were given, {len(printed) - 1} were printed")
        return 1
    print(f"{len(wanted)} epochs are equal to Python's, sample for sample.")
    return 0


sys.exit(main())
