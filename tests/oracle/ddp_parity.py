"""Trains with lockstep's Ddp and with Python's DistributedDataParallel over Gloo, 20 steps, and compares.

    python ddp_parity.py <path of the program ddp_training>

The oracle is Python on the same LibTorch, one thread a rank.
  two ranks     gradients, weights, buffers and losses are equal, bit for bit: halving is exact, and the sum of two
                numbers has one order
  3, 4 ranks    first gradients differ by no more than the roundings of two ways to average them; after 20 steps
                lockstep is at most twice as far as Python's DDP from the same training in fp64
  whole numbers first gradients equal those of one process with the whole batch, in fp32 and fp64
  whole batch   after 20 steps no weight differs from that of one Python process that has all batches in one by more than
                twice the largest difference of any weight between two such processes with one and with two threads, or
                by more than Python's own DDP does (kernels of x86-64 hardly depend on the number of threads): per model
                and optimizer. An MLP is the same bit for bit with any number of threads (tried: 512 wide with 2048
                samples, 1024 with 512), so that the bar would be 0, which no sum over ranks meets, Python's own
                neither; there, and for the others too: at most twice as far as that process from fp64
Distances from fp64 are of all weights, by the Euclidean norm, as a share of the weights'.
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import torch
    from safetensors.torch import load_file
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test brings it")
    sys.exit(77)

import ddp_training  # noqa: E402

ALL = ["mlp-sgd", "mlp-adamw", "conv-sgd", "conv-adamw", "resnet-sgd", "transformer-sgd", "transformer-adamw",
       "gpt-adamw", "integers-sgd"]
# Batch norm's statistics depend on how samples are dealt out: no whole batch is like its parts.
WHOLE = [case for case in ALL if not case.startswith(("resnet", "gpt"))]
LARGER = ["mlp-sgd", "transformer-adamw", "integers-sgd"]  # for 3 and 4 ranks
LIMIT = 600  # seconds for one job, ten times what it takes
MOST_RANKS = 4
ROUNDING = 2.0**-24

failures = 0


def check(true, text):
    global failures
    failures += not true
    print(f"{'ok  ' if true else 'FAIL'} {text}")


def python_processes():
    """One for each rank, for all jobs: Python and torch are loaded once in each. Spawned, not forked: autograd refuses
    to work in a fork of a process in which it has started threads, one for each GPU."""
    return multiprocessing.get_context("spawn").Pool(MOST_RANKS, torch.set_num_threads, (1,))


def in_processes(pool, function, arguments):
    """At the same time: no process takes a second job before it is done with its first."""
    assert len(arguments) <= MOST_RANKS
    pool.starmap_async(function, arguments, chunksize=1).get(LIMIT)


def python_ddp(pool, folder, ranks, cases):
    in_processes(pool, ddp_training.train_rank, [(folder, rank, ranks, cases) for rank in range(ranks)])


def lockstep_ddp(folder, ranks, cases):
    subprocess.run([pathlib.Path(sys.argv[1]).resolve(), folder, *cases], check=True, timeout=LIMIT, cwd=folder,
                   env=os.environ | {"LOCKSTEP_RANKS": str(ranks)})


def joined(tensors, kind):
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors) if name.startswith(kind)])


def distance(found, from_, kind="weight."):
    there = joined(from_, kind)
    return ((joined(found, kind) - there).norm() / there.norm()).item()


def compare_ranks(folder, ranks, cases):
    """All ranks of lockstep must have the same bits, and at two ranks Python's."""
    for case in cases:
        ours = [load_file(f"{folder}/lockstep{ranks}/{case}.{rank}.safetensors") for rank in range(ranks)]
        apart = [name for name in ours[0] if name != "losses" and any(not ours[0][name].equal(one[name]) for one in ours)]
        check(not apart, f"{case}, {ranks} ranks: all have the same {len(ours[0]) - 1} tensors {apart[:3] or ''}")
        if ranks > 2:
            continue
        for rank, mine in enumerate(ours):
            theirs = load_file(f"{folder}/python{ranks}/{case}.{rank}.safetensors")
            # Python's DDP sends buffers before the next forward, lockstep after this backward: of others than rank
            # 0, Python's last are not yet sent.
            names = [name for name in theirs if rank == 0 or not name.startswith("buffer.")]
            apart = [name for name in names if not theirs[name].equal(mine[name])]
            check(set(mine) == set(theirs) and not apart,
                  f"{case}, rank {rank}: {len(names)} tensors equal Python's, bit for bit {apart[:3] or ''}")


def compare_larger(folder, ranks):
    for case in (case for case in LARGER if case != "integers-sgd"):
        ours, theirs = (load_file(f"{folder}/{side}{ranks}/{case}.0.safetensors") for side in ("lockstep", "python"))
        exact = load_file(f"{folder}/exact{ranks}/{case}.safetensors")
        # Each way multiplies or divides every term once and adds them ranks - 1 times, and one over ranks is rounded
        # too: ranks + 1 roundings each, relative to the sum of the terms' sizes.
        parts = [ddp_training.gradients_of(case, rank) for rank in range(ranks)]
        worst = 0.0
        for name in parts[0]:
            bound = 2 * (ranks + 1) * ROUNDING * sum(part[name].abs() for part in parts) / ranks
            apart = (ours[f"first.{name}"] - theirs[f"first.{name}"]).abs()
            worst = max(worst, (apart / bound.clamp_min(torch.finfo(torch.float32).tiny)).max().item())
        check(worst <= 1, f"{case}, {ranks} ranks: first gradients are within {worst:.2f} of the bound of roundings")
        mine, its = distance(ours, exact), distance(theirs, exact)
        check(mine <= 2 * its, f"{case}, {ranks} ranks: {mine:.2e} from fp64, Python's DDP {its:.2e}")


def largest_difference(found, other):
    return (joined(found, "weight.") - joined(other, "weight.")).abs().max().item()


def compare_whole(folder):
    load = lambda side, case: load_file(f"{folder}/{side}/{case}.safetensors")  # noqa: E731
    bars = 0
    for case in (case for case in WHOLE if case != "integers-sgd"):
        ours, whole, exact = load("lockstep2", f"{case}.0"), load("threads1", case), load("exact2", case)
        mine, threads = largest_difference(ours, whole), largest_difference(load("threads2", case), whole)
        its = largest_difference(load("python2", f"{case}.0"), whole)
        text = (f"{case}: weights differ from one process's by up to {mine:.2e}, with two threads by {threads:.2e}, "
                f"Python's DDP by {its:.2e}")
        if threads == 0:
            print(f"     {text}: no bar")
        else:
            bars += 1
            check(mine <= max(2 * threads, its), text)
        check(distance(ours, exact) <= 2 * distance(whole, exact),
              f"{case}: {distance(ours, exact):.2e} from fp64, one process {distance(whole, exact):.2e}")
    check(bars > 0, f"the number of threads changes the weights of {bars} of these")


def compare_whole_numbers(folder):
    """Ranks are powers of two, so that the mean is exact too."""
    for ranks, others in ((2, ("threads1", "exact2")), (4, ("exact4",))):
        ours = load_file(f"{folder}/lockstep{ranks}/integers-sgd.0.safetensors")
        for other in others:
            theirs = load_file(f"{folder}/{other}/integers-sgd.safetensors")
            first = [name for name in ours if name.startswith("first.")]
            apart = [name for name in first if not ours[name].double().equal(theirs[name].double())]
            check(not apart and any(ours[name].any() for name in first),
                  f"whole numbers, {ranks} ranks: {len(first)} gradients equal those of {other} {apart or ''}")


def train_with_two_threads(folder):
    return subprocess.Popen([sys.executable, ddp_training.__file__, f"{folder}/threads2", "2", *WHOLE],
                            env=os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"})


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, python_processes() as pool:
        for name in ("lockstep2", "python2", "lockstep3", "python3", "exact3", "lockstep4", "python4", "exact4",
                     "threads1", "threads2", "exact2"):
            pathlib.Path(folder, name).mkdir()
        whole = [(f"{folder}/threads1", 2, WHOLE, torch.float32), (f"{folder}/exact2", 2, WHOLE, torch.float64)]
        whole += [(f"{folder}/exact{ranks}", ranks, LARGER, torch.float64) for ranks in (3, 4)]
        in_processes(pool, ddp_training.train_whole, whole)
        two_threads = train_with_two_threads(folder)  # beside two ranks: four processors in all
        for ranks in (2, 3, 4):
            cases = ALL if ranks == 2 else LARGER
            lockstep_ddp(f"{folder}/lockstep{ranks}", ranks, cases)
            python_ddp(pool, f"{folder}/python{ranks}", ranks, cases)
            compare_ranks(folder, ranks, cases)
            if two_threads.wait(timeout=LIMIT) != 0:
                raise SystemExit("the training with two threads failed; its own words stand above")
        compare_larger(folder, 3)
        compare_larger(folder, 4)
        compare_whole(folder)
        compare_whole_numbers(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
