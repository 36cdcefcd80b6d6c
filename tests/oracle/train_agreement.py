"""Compares GradScaler, optimizers and schedules with torch.amp, torch.optim and torch.optim.lr_scheduler.

    python train_agreement.py <path of the program train_statements>
"""

import json
import os
import random
import subprocess
import sys

try:
    import torch
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

RNG = random.Random(os.environ.get("LOCKSTEP_SOAK_SEED", 7))
COUNT = 33  # not a multiple of any vector length
torch.set_num_threads(1)


def ask(arguments, lines=()):
    text = "\n".join(" ".join(float(number).hex() for number in line) for line in lines)
    printed = subprocess.run([sys.argv[1], *map(str, arguments)], input=text, check=True, capture_output=True,
                             text=True).stdout
    return [[float.fromhex(word) for word in line.split()] for line in printed.splitlines()]


def numbers(scale):
    return (torch.randn(COUNT) * scale).tolist()


def check_scaler():
    """Bit-identical, with some overflows."""
    initial, growth, backoff, interval = 1000.0, 3.0, 0.25, 2
    lines = [numbers(100.0) for _ in range(40)]
    for line in lines:
        if RNG.random() < 0.3:
            line[RNG.randrange(COUNT)] = RNG.choice([float("inf"), float("-inf"), float("nan")])
    answers = ask(["scaler", initial, growth, backoff, interval], lines)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=interval)
    for number, (line, answer) in enumerate(zip(lines, answers, strict=True)):
        parameter = torch.nn.Parameter(torch.zeros(COUNT))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.scale(torch.zeros(()))
        parameter.grad = torch.tensor(line)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        stepped = bool((parameter != 0).any())
        if [stepped, scaler.get_scale()] != [bool(answer[0]), answer[1]]:
            return f"GradScaler, step {number}: Python {stepped}, {scaler.get_scale()}; lockstep {answer[:2]}"
        if not torch.equal(torch.nan_to_num(parameter.grad), torch.nan_to_num(torch.tensor(answer[2:]))):
            return f"GradScaler, step {number}: gradients differ"
    return None


def check_optimizer(kind, make):
    """Fifty steps: each rounds a value below 4 a few times, lockstep and Python at different operations."""
    start = numbers(1.0)
    lines = [numbers(RNG.choice([1e-4, 1.0, 10.0])) for _ in range(50)]
    answers = ask([kind], [start, *lines])
    for fused in (False, True):
        parameter = torch.nn.Parameter(torch.tensor(start))
        optimizer = make([parameter], fused)
        for number, (line, answer) in enumerate(zip(lines, answers, strict=True)):
            parameter.grad = torch.tensor(line)
            optimizer.step()
            apart = (parameter.detach() - torch.tensor(answer)).abs().max().item()
            if apart > (number + 1) * 4 * torch.finfo(torch.float).eps:
                return f"{kind} (fused {fused}), step {number}: {apart} apart"
    return None


def python_rates(make, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def check_schedules():
    """Python multiplies from step to step, so each step adds one rounding error."""
    lr = torch.optim.lr_scheduler
    warmup = {"kind": "linear_warmup", "steps": 10, "from": 0.0}
    cosine = {"kind": "cosine", "steps": 60, "min_lr_ratio": 0.1}
    rows = [
        (cosine, lambda o: lr.CosineAnnealingLR(o, 60, eta_min=0.1), 61),
        ({"kind": "linear_decay", "steps": 40, "min_lr_ratio": 0.2}, lambda o: lr.LinearLR(o, 1.0, 0.2, 40), 60),
        ({"kind": "step_decay", "every": 7, "factor": 0.5}, lambda o: lr.StepLR(o, 7, 0.5), 60),
        (warmup, lambda o: lr.LinearLR(o, 0.1, 1.0, 9), 60),
        ({"kind": "then", "first": warmup, "next": cosine},
         lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, 1.0, 9), lr.CosineAnnealingLR(o, 60, eta_min=0.1)], [10]),
         60),
    ]
    for description, make, steps in rows:
        ours = [row[0] for row in ask(["schedule", json.dumps(description), steps])]
        for step, (own, python) in enumerate(zip(ours, python_rates(make, steps), strict=True)):
            if abs(own - python) > 1e-12:
                return f"{description}, step {step}: lockstep {own}, Python {python}"
    return None


def main():
    torch.manual_seed(RNG.randrange(2**31))
    failures = [
        check_scaler(),
        check_optimizer("adamw", lambda p, fused: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=fused)),
        check_optimizer("adam", lambda p, fused: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, fused=fused)),
        check_optimizer("sgd", lambda p, fused: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1,
                                                                nesterov=True, fused=fused)),
        check_schedules(),
    ]
    for failure in filter(None, failures):
        print(failure)
    if not any(failures):
        print("GradScaler is bit-identical to Python's; optimizers and schedules differ within the stated roundings.")
    return 1 if any(failures) else 0


sys.exit(main())
