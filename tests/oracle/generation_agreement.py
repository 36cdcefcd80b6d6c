"""Compares text generation with a key-value cache with Python's model, which has no cache.

    python generation_agreement.py <path of the program generated_tokens>

Both take the most likely token each time. If the context is full, its last half is read again.
"""

import os
import pathlib
import subprocess
import sys

try:
    import torch
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402

GPT = dict(vocabulary=97, context=16, layers=2, heads=3, width=48, tied=False)
PROMPT_LENGTHS = (1, 7, 16, 30)
COUNT = 60
CLEAR = 1e-5  # a margin larger than the rounding error: logits are below one, and rounded to 2^-24 a hundred times


@torch.no_grad()
def likeliest(model, window):
    """Python's tokens, and the smallest margin between the two best logits."""
    tokens, margin = [], float("inf")
    window = window[-GPT["context"]:]
    for _ in range(COUNT):
        if len(window) > GPT["context"]:
            window = window[-(GPT["context"] // 2):]
        best = model(torch.tensor([window]))[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        window = window + tokens[-1:]
    return tokens, margin


def main() -> int:
    torch.set_num_threads(1)
    model = models.Gpt(**GPT)
    models.fill(model)
    command = [sys.argv[1], str(COUNT), *map(str, PROMPT_LENGTHS)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True,
                             env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout
    failures = 0
    for length, line in zip(PROMPT_LENGTHS, printed.splitlines(), strict=True):
        ours = [int(token) for token in line.split()]
        theirs, margin = likeliest(model, models.made_up_tokens(1, length, GPT["vocabulary"])[0].tolist())
        equal = ours == theirs and margin > CLEAR
        print(f"prompt of {length}: {COUNT} tokens, {len(set(theirs))} different ones, "
              f"{'are' if equal else 'are NOT'} Python's; the smallest margin was {margin:.2g}")
        failures += not equal
    return 1 if failures else 0


sys.exit(main())
