"""One rank of torch.distributed's Gloo under `lockstep bench comm --compare gloo`.

    bench_comm_gloo.py REQUEST ANSWER

The launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and pins the process. Calls are timed as in
measure.cpp; request.h documents the two files.
"""
import itertools
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

WARM_UP, LEAST_ITERATIONS, MOST_ITERATIONS = 3, 10, 5000
BUFFER_ALIGNMENT = 128
ROOTED = ("broadcast", "reduce", "gather", "scatter")
IN_PLACE = ("all_reduce", "broadcast", "reduce")


def round_up(value, step):
    return (value + step - 1) // step * step


def views_of(buffer, case, dtype):
    """The tensors of one call, in one buffer."""
    ranks, rank, size = dist.get_world_size(), dist.get_rank(), case["bytes"]
    part = size // ranks
    inputs = {"reduce_scatter": size, "all_gather": part, "gather": part, "scatter": size, "all_to_all": size}
    outputs = {"reduce_scatter": part, "all_gather": size, "gather": size, "scatter": part, "all_to_all": size}
    op = case["op"]
    if op in IN_PLACE:
        whole = buffer[:size].view(dtype)
        return whole, whole
    start = round_up(inputs[op], BUFFER_ALIGNMENT)
    first, second = buffer[: inputs[op]].view(dtype), buffer[start : start + outputs[op]].view(dtype)
    if op == "gather":
        return first, list(second.chunk(ranks)) if rank == 0 else None
    if op == "scatter":
        return list(first.chunk(ranks)) if rank == 0 else None, second
    return first, second


def buffer_bytes(case):
    size, part = case["bytes"], case["bytes"] // dist.get_world_size()
    if case["op"] in IN_PLACE:
        return round_up(size, BUFFER_ALIGNMENT)
    first = part if case["op"] in ("all_gather", "gather") else size
    second = part if case["op"] in ("reduce_scatter", "scatter") else size
    return round_up(round_up(first, BUFFER_ALIGNMENT) + second, BUFFER_ALIGNMENT)


CALLS = {
    "all_reduce": lambda first, second: dist.all_reduce(first),
    "reduce_scatter": lambda first, second: dist.reduce_scatter_tensor(second, first),
    "all_gather": lambda first, second: dist.all_gather_into_tensor(second, first),
    "broadcast": lambda first, second: dist.broadcast(first, 0),
    "reduce": lambda first, second: dist.reduce(first, 0),
    "gather": lambda first, second: dist.gather(first, second, 0),
    "scatter": lambda first, second: dist.scatter(second, first, 0),
    "all_to_all": lambda first, second: dist.all_to_all_single(second, first),
}


def time_calls(case, dtype, iterations, buffers):
    """One time per call in seconds: the maximum over all ranks."""
    seconds, call, rooted = [], CALLS[case["op"]], case["op"] in ROOTED
    for _ in range(iterations):
        first, second = views_of(next(buffers), case, dtype)
        if rooted:
            dist.barrier()
        begin = time.perf_counter()
        call(first, second)
        seconds.append(time.perf_counter() - begin)
    longest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.tolist()


def measure(case, request, arena):
    dtype = getattr(torch, case["dtype"])
    length = buffer_bytes(case)
    number = max(1, min(-(-request["rotation_bytes"] // length), arena.numel() // length))
    rotated = (arena[i * length : (i + 1) * length] for i in itertools.cycle(range(number)))
    same = itertools.repeat(arena[:length])
    warm_up = time_calls(case, dtype, WARM_UP, rotated)
    iterations = request["iterations"]
    if iterations == 0:
        wanted = request["seconds"] / max(statistics.median(warm_up), 1e-7)
        iterations = int(min(max(wanted, LEAST_ITERATIONS), MOST_ITERATIONS))
    cold = time_calls(case, dtype, iterations, rotated)
    time_calls(case, dtype, WARM_UP, same)
    hot = time_calls(case, dtype, max(iterations // 2, 1), same)
    return {"cold": cold, "hot": hot, "add_bytes_per_second": 0}


def can(case, arena):
    """Whether this Gloo supports the collective for the dtype. Every rank gets the same result before it sends data."""
    try:
        CALLS[case["op"]](*views_of(arena, dict(case, bytes=8 * dist.get_world_size()), getattr(torch, case["dtype"])))
        return True
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return False


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    arena = torch.full((request["arena_bytes"],), 0x3C, dtype=torch.uint8)
    cases = [measure(case, request, arena) if can(case, arena) else None for case in request["cases"]]
    if dist.get_rank() == 0:
        with open(sys.argv[2], "w") as file:
            json.dump({"about": f"Gloo of PyTorch {torch.__version__}", "cases": cases}, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
