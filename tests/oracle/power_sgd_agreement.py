"""Compares PowerSgd with Python's powerSGD_hook over Gloo: two ranks, 20 steps, from the same Q.

    python power_sgd_agreement.py <path of the program power_sgd_steps>

The oracle is Python's hook on the same gradients, in fp32 and in fp64; the latter counts as exact.
  every step    the averaged gradients differ from the exact ones by at most 1e-3 of their norm, and in the worst step by
                at most ten times as much as Python's in fp32 in its worst step. Error feedback amplifies roundings from
                step to step, most with rank 1, and each side has other roundings: a factor of 3 was seen
  step 0        parameters that are not compressed are bit-identical to Python's (later ones include an error feedback in
                Python, whose sum over the ranks is 0 except for rounding)
  the end       the errors of both ranks are within the same bounds, where a matrix is compressed
Distances are in the Euclidean norm over all parameters, relative to the norm of the exact values.
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # if the hook sees a GPU, it synchronizes it, also for gradients on the CPU
try:
    import numpy  # noqa: F401  the hook's random state needs it
    import torch
    import torch.distributed
    from safetensors.torch import load_file, save_file
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as python_hook
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

RANKS = 2
APPROXIMATIONS = [1, 2, 4]
STEPS = 20
LIMIT = 600  # seconds, ten times the usual time
MOST_APART = 1e-3
MOST_TIMES = 10


class Bucket:
    """What the hook uses of a GradBucket."""

    def __init__(self, tensors):
        self.flat = torch.cat([tensor.flatten() for tensor in tensors])
        self.shapes = [tensor.shape for tensor in tensors]

    def buffer(self):
        return self.flat

    def gradients(self):
        parts = self.flat.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def index(self):
        return 0

    def is_last(self):
        return True


def first_factors(given, names, dtype):
    """A stand-in for torch.randn that returns the given Q, in the order in which the hook asks: by shape."""
    by_shape = {}
    for name in names:
        if f"factors.{name}" in given:
            gradient = given[f"gradient.0.{name}"]
            shape = (gradient.shape[0], gradient.numel() // gradient.shape[0])
            by_shape.setdefault(shape, []).append(given[f"factors.{name}"].t().to(dtype))
    queue = [factors for group in by_shape.values() for factors in group]

    def draw(*sizes, **_):
        factors = queue.pop(0)
        assert tuple(sizes) == (1, *factors.shape), (sizes, factors.shape)
        return factors.unsqueeze(0)

    return draw


def reduce_steps(given, names, approximation, dtype):
    state = python_hook.PowerSGDState(None, approximation, start_powerSGD_iter=2)
    state.iter = 2
    found = {}
    drawn, torch.randn = torch.randn, first_factors(given, names, dtype)
    try:
        for step in range(STEPS):
            bucket = Bucket([given[f"gradient.{step}.{name}"].to(dtype) for name in names])
            python_hook.powerSGD_hook(state, bucket).wait()
            for name, gradient in zip(names, bucket.gradients(), strict=True):
                found[f"result.{step}.{name}"] = gradient.clone()
    finally:
        torch.randn = drawn
    bucket.flat = state.error_dict[0]
    for name, error in zip(names, bucket.gradients(), strict=True):
        found[f"error.{name}"] = error.clone()
    return found


def python_rank(folder, rank):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=RANKS)
    for approximation in APPROXIMATIONS:
        given = load_file(f"{folder}/{approximation}.{rank}.safetensors")
        names = [name.split(".", 2)[2] for name in given if name.startswith("gradient.0.")]
        names.sort()  # the same order on both ranks
        for dtype, side in ((torch.float32, "python"), (torch.float64, "exact")):
            save_file(reduce_steps(given, names, approximation, dtype), f"{folder}/{side}.{approximation}.{rank}")
    torch.distributed.destroy_process_group()


def in_python(folder):
    """Each rank in a process of its own, which ends with it: idle processes of a pool waited for each other for ever, about
    once in thirty runs."""
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=python_rank, args=(folder, rank), daemon=True) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for rank, process in enumerate(ranks):
        process.join(LIMIT)
        if process.exitcode is None:
            raise SystemExit(f"rank {rank} of Python's hook did not end within {LIMIT} s")
        if process.exitcode != 0:
            raise SystemExit(f"rank {rank} of Python's hook ended with {process.exitcode}")


def together(tensors, prefix, names):
    return torch.cat([tensors[f"{prefix}.{name}"].double().flatten() for name in names])


def distance(found, exact, prefix, names, scale):
    return ((together(found, prefix, names) - together(exact, prefix, names)).norm() / scale).item()


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([pathlib.Path(sys.argv[1]).resolve(), folder, *map(str, APPROXIMATIONS)], check=True,
                       timeout=LIMIT, cwd=folder, env=os.environ | {"LOCKSTEP_RANKS": str(RANKS)})
        in_python(folder)
        for approximation in APPROXIMATIONS:
            for rank in range(RANKS):
                ours = load_file(f"{folder}/{approximation}.{rank}.safetensors")
                theirs = load_file(f"{folder}/python.{approximation}.{rank}")
                exact = load_file(f"{folder}/exact.{approximation}.{rank}")
                names = sorted(name.split(".", 2)[2] for name in ours if name.startswith("gradient.0."))
                compressed = [name for name in names if f"factors.{name}" in ours]
                mine, its = [], []
                for prefix, over in [(f"result.{step}", names) for step in range(STEPS)] + [("error", compressed)]:
                    scale = together(exact, prefix, over).norm()
                    mine.append(distance(ours, exact, prefix, over, scale))
                    its.append(distance(theirs, exact, prefix, over, scale))
                plain = [name for name in names if name not in compressed]
                equal = all(ours[f"result.0.{name}"].equal(theirs[f"result.0.{name}"]) for name in plain)
                lost = (scale / together(exact, f"result.{STEPS - 1}", names).norm()).item()
                close = max(mine) <= min(MOST_APART, MOST_TIMES * max(its))
                good = close and equal and len(compressed) == 4 and len(plain) == 2 and lost > 0.1
                failures += not good
                print(f"{'ok  ' if good else 'FAIL'} approximation of rank {approximation}, rank {rank} of {RANKS}: in {STEPS}"
                      f" steps at most {max(mine):.1e} from fp64, Python's hook {max(its):.1e};"
                      f" the error has {lost:.2f} times the norm of a gradient")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
