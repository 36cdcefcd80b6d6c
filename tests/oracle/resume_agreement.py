"""Trains with two ranks, resumes from one of their checkpoints with one, two and four ranks, and compares with Python.

    python resume_agreement.py <path of the program resumed_training>

  samples   the global batch of each step is Python's, for any number of ranks; in every epoch each sample occurs
            once: none is lost, none repeated
  losses    two resumed ranks are bit-identical to the two uninterrupted ones. The distance of one and of four ranks
            from them, and from one Python process that trains on whole batches, is at most twice the largest distance
            of two such processes that differ only in their number of threads
"""

import itertools
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import torch
    from torch.nn.functional import cross_entropy
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402

SAMPLES, BATCH, VOCABULARY, LENGTH, SEED, LR = 384, 32, 60, 12, 5, 1e-2  # as in resumed_training.cpp
STEPS_PER_EPOCH = SAMPLES // BATCH
SAVED, LAST = 41, 8 * STEPS_PER_EPOCH  # within the fourth epoch, at the end of the eighth
THREADS = (1, 2)
LIMIT = 600  # seconds per job, ten times its usual time

failures = 0


def check(true, text):
    global failures
    failures += not true
    print(f"{'ok  ' if true else 'FAIL'} {text}")


def batches():
    """The order of DistributedSampler: one permutation per epoch."""
    for epoch in range(LAST // STEPS_PER_EPOCH):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch))
        yield from order.split(BATCH)


def train_in_python(num_threads, losses):
    torch.set_num_threads(num_threads)
    net = models.BenchmarkTransformer(VOCABULARY, 16, 32, 4, 48, 2)
    models.fill(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
    tokens = models.made_up_tokens(SAMPLES, LENGTH + 1, VOCABULARY)
    for step, batch in enumerate(batches()):
        chosen = tokens[batch]
        loss = cross_entropy(net(chosen[:, :LENGTH]).flatten(0, 1), chosen[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item()


def python_losses():
    """For each number of threads, in a separate process. Spawned, not forked: see ddp_parity.py."""
    spawn = multiprocessing.get_context("spawn")
    found = {num_threads: spawn.Array("d", LAST) for num_threads in THREADS}
    for num_threads, losses in found.items():
        process = spawn.Process(target=train_in_python, args=(num_threads, losses))
        process.start()
        process.join(LIMIT)
        if process.exitcode != 0:
            process.kill()
            raise SystemExit(f"Python's training with {num_threads} threads ended with {process.exitcode}")
    return {num_threads: list(losses) for num_threads, losses in found.items()}


def lockstep(ranks, run, last, log):
    subprocess.run([pathlib.Path(sys.argv[1]).resolve(), run, str(last), log], check=True, timeout=LIMIT, cwd=run.parent,
                   env=os.environ | {"LOCKSTEP_RANKS": str(ranks)})


def read_log(log, ranks):
    """For each step, the mean loss and all samples in the order of the ranks."""
    steps = {}
    for rank in range(ranks):
        for line in pathlib.Path(f"{log}.{rank}").read_text().splitlines():
            step, loss, *samples = line.split()
            losses, numbers = steps.setdefault(int(step), ([], []))
            losses.append(float(loss))
            numbers.extend(map(int, samples))
    return {step: (sum(losses) / ranks, numbers) for step, (losses, numbers) in steps.items()}


def broken_at(folder, ranks):
    """The uninterrupted run up to its checkpoint, then `ranks` ranks from there."""
    run, log, step = folder / f"broken{ranks}", folder / f"after{ranks}", f"checkpoints/step-{SAVED}"
    shutil.copytree(folder / "uninterrupted" / step, run / step)
    lockstep(ranks, run, LAST, log)
    before, after = read_log(folder / "whole", 2), read_log(log, ranks)
    check(sorted(after) == list(range(SAVED, LAST)), f"{ranks} ranks resume with step {SAVED} and make {len(after)} steps")
    return {step: before[step] for step in range(SAVED)} | after


def compare_samples(ranks, steps):
    dealt = [batch.tolist() for batch in batches()]
    apart = [step for step in range(LAST) if steps[step][1] != dealt[step]]
    check(not apart, f"{ranks} ranks: {LAST} global batches are Python's {apart[:3] or ''}")
    lost = repeated = 0
    for first in range(0, LAST, STEPS_PER_EPOCH):
        seen = list(itertools.chain.from_iterable(steps[first + i][1] for i in range(STEPS_PER_EPOCH)))
        lost += len(set(range(SAMPLES)) - set(seen))
        repeated += len(seen) - len(set(seen))
    check(lost == repeated == 0, f"{ranks} ranks: {lost} samples lost, {repeated} repeated in {LAST // STEPS_PER_EPOCH} epochs")


def distance(some, others):
    return max(abs(one - other) for one, other in zip(some, others, strict=True))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lockstep(2, folder / "uninterrupted", LAST, folder / "whole")
        whole = read_log(folder / "whole", 2)
        compare_samples("uninterrupted 2", whole)
        uninterrupted = [whole[step][0] for step in range(LAST)]
        python = python_losses()
        bar = 2 * max(distance(one, other) for one, other in itertools.combinations(python.values(), 2))
        print(f"losses fall from {uninterrupted[0]:.3f} to {uninterrupted[-1]:.3f}; the tolerance is {bar:.2e}")
        check(distance(uninterrupted, python[1]) <= bar, f"uninterrupted: {distance(uninterrupted, python[1]):.2e} from Python's")
        for ranks in (1, 2, 4):
            steps = broken_at(folder, ranks)
            compare_samples(ranks, steps)
            losses = [steps[step][0] for step in range(LAST)]
            apart, from_python = distance(losses, uninterrupted), distance(losses, python[1])
            if ranks == 2:
                check(apart == 0, f"2 ranks: losses are bit-identical to the uninterrupted run's ({apart:.2e} apart)")
                continue
            check(0 < apart <= bar, f"{ranks} ranks: {apart:.2e} from the uninterrupted run's losses")
            check(from_python <= bar, f"{ranks} ranks: {from_python:.2e} from Python's losses")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
