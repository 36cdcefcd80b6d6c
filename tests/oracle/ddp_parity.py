"""Trains with lockstep's Ddp and with Python's DistributedDataParallel over Gloo, 20 steps, and compares.

    python ddp_parity.py <path of the program ddp_training>

The oracle is Python with the same LibTorch, one thread per rank.
  two ranks     gradients, weights, buffers and losses are bit-identical: halving is exact, and the sum of two numbers
                has only one order
  over shards   weights and losses likewise, with LibTorch's fused AdamW and SGD over the shards of Shard::optimizer
  3, 4 ranks    first gradients differ by at most the roundings of two ways to average them; after 20 steps, the distance
                of lockstep from the same training in fp64 is at most twice that of Python's DDP
  integers      first gradients equal those of one process with the whole batch, in fp32 and fp64
  whole batch   compared with one Python process that has the batches of all ranks in one: after 20 steps, no weight
                differs by more than twice the largest difference of any weight between two such processes with one and
                with two threads, or by more than with Python's own DDP (kernels of x86-64 hardly depend on the number
                of threads), per model and optimizer. An MLP is bit-identical with any number of threads (tried: width
                512 with 2048 samples, 1024 with 512). The tolerance would be 0, which no sum over ranks meets, not even
                Python's. There, and for the other models too, the distance from fp64 is at most twice that of the one
                process
Distances from fp64 are over all weights, in the Euclidean norm, relative to the norm of the weights.
"""

import concurrent.futures
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
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

import ddp_training  # noqa: E402

ALL = ["mlp-sgd", "mlp-adamw", "conv-sgd", "conv-adamw", "resnet-sgd", "transformer-sgd", "transformer-adamw",
       "gpt-adamw", "integers-sgd"]
# Statistics of batch norm depend on how samples are divided among ranks, so a whole batch differs from its parts.
WHOLE = [case for case in ALL if not case.startswith(("resnet", "gpt"))]
LARGER = ["mlp-sgd", "transformer-adamw", "integers-sgd"]  # for 3 and 4 ranks
SHARDED = ["mlp-adamw", "conv-adamw", "resnet-sgd", "gpt-adamw"]  # with a sharded optimizer too
LIMIT = 600  # seconds per job, ten times its usual time
MOST_RANKS = 4
ROUNDING = 2.0**-24

failures = 0


def check(true, text):
    global failures
    failures += not true
    print(f"{'ok  ' if true else 'FAIL'} {text}")


def python_processes():
    """One process per rank, for all jobs, so that each loads Python and torch once. Spawned, not forked: autograd does
    not work in a fork of a process in which it has started threads, one per GPU. Not a multiprocessing.Pool: that replaces
    a process that has crashed, and waits for its result for ever."""
    return concurrent.futures.ProcessPoolExecutor(MOST_RANKS, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,))


def in_processes(pool, function, arguments):
    """Runs all jobs at the same time: no process takes a second job before its first is done."""
    assert len(arguments) <= MOST_RANKS
    for job in [pool.submit(function, *each) for each in arguments]:
        job.result(LIMIT)


def python_ddp(pool, folder, ranks, cases):
    in_processes(pool, ddp_training.train_rank, [(folder, rank, ranks, cases) for rank in range(ranks)])


def lockstep_ddp(folder, ranks, cases):
    subprocess.run([pathlib.Path(sys.argv[1]).resolve(), folder, *cases], check=True, timeout=LIMIT, cwd=folder,
                   env=os.environ | {"LOCKSTEP_RANKS": str(ranks)})


def concatenated(tensors, kind):
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors) if name.startswith(kind)])


def distance(found, from_, kind="weight."):
    there = concatenated(from_, kind)
    return ((concatenated(found, kind) - there).norm() / there.norm()).item()


def compare_ranks(folder, ranks, cases):
    """All ranks of lockstep must be bit-identical, and with two ranks also to Python's."""
    for case in cases:
        ours = [load_file(f"{folder}/lockstep{ranks}/{case}.{rank}.safetensors") for rank in range(ranks)]
        apart = [name for name in ours[0] if name != "losses" and any(not ours[0][name].equal(one[name]) for one in ours)]
        check(not apart, f"{case}, {ranks} ranks: all have the same {len(ours[0]) - 1} tensors {apart[:3] or ''}")
        if ranks > 2:
            continue
        for rank, mine in enumerate(ours):
            theirs = load_file(f"{folder}/python{ranks}/{case}.{rank}.safetensors")
            # Python's DDP broadcasts buffers before the next forward, lockstep after this backward: on ranks other
            # than 0, Python's last buffers have not been updated yet.
            names = [name for name in theirs if rank == 0 or not name.startswith("buffer.")]
            apart = [name for name in names if not theirs[name].equal(mine[name])]
            check(set(mine) == set(theirs) and not apart,
                  f"{case}, rank {rank}: {len(names)} tensors are bit-identical to Python's {apart[:3] or ''}")


def compare_shards(folder):
    """Optimizers of LibTorch over the shards of two ranks give the weights of Python's DDP, bit for bit."""
    for case in SHARDED:
        for rank in range(2):
            ours = load_file(f"{folder}/lockstep2/{case}+shards.{rank}.safetensors")
            theirs = load_file(f"{folder}/python2/{case}.{rank}.safetensors")
            names = [name for name in theirs if name == "losses" or name.startswith("weight.")]
            apart = [name for name in names if not theirs[name].equal(ours[name])]
            check(not apart, f"{case} over shards, rank {rank}: {len(names)} tensors are bit-identical to Python's "
                             f"{apart[:3] or ''}")


def compare_larger(folder, ranks):
    for case in (case for case in LARGER if case != "integers-sgd"):
        ours, theirs = (load_file(f"{folder}/{side}{ranks}/{case}.0.safetensors") for side in ("lockstep", "python"))
        exact = load_file(f"{folder}/exact{ranks}/{case}.safetensors")
        # Both ways multiply or divide every term once and add ranks - 1 times, and 1 / ranks is rounded too: ranks + 1
        # roundings each, relative to the sum of the absolute terms.
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
    return (concatenated(found, "weight.") - concatenated(other, "weight.")).abs().max().item()


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
            print(f"     {text}: no tolerance")
        else:
            bars += 1
            check(mine <= max(2 * threads, its), text)
        check(distance(ours, exact) <= 2 * distance(whole, exact),
              f"{case}: {distance(ours, exact):.2e} from fp64, one process {distance(whole, exact):.2e}")
    check(bars > 0, f"the number of threads changes the weights of {bars} of these")


def compare_integers(folder):
    """The numbers of ranks are powers of two, so that the mean is exact too."""
    for ranks, others in ((2, ("threads1", "exact2")), (4, ("exact4",))):
        ours = load_file(f"{folder}/lockstep{ranks}/integers-sgd.0.safetensors")
        for other in others:
            theirs = load_file(f"{folder}/{other}/integers-sgd.safetensors")
            first = [name for name in ours if name.startswith("first.")]
            apart = [name for name in first if not ours[name].double().equal(theirs[name].double())]
            check(not apart and any(ours[name].any() for name in first),
                  f"integers, {ranks} ranks: {len(first)} gradients equal those of {other} {apart or ''}")


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
        two_threads = train_with_two_threads(folder)  # concurrent with two ranks: four processors in total
        for ranks in (2, 3, 4):
            cases = ALL if ranks == 2 else LARGER
            lockstep_ddp(f"{folder}/lockstep{ranks}", ranks, cases + [f"{case}+shards" for case in SHARDED if ranks == 2])
            python_ddp(pool, f"{folder}/python{ranks}", ranks, cases)
            compare_ranks(folder, ranks, cases)
            if two_threads.wait(timeout=LIMIT) != 0:
                raise SystemExit("the training with two threads failed; its message is above")
        compare_shards(folder)
        compare_larger(folder, 3)
        compare_larger(folder, 4)
        compare_whole(folder)
        compare_integers(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
