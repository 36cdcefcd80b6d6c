"""Compares the initial weights and the sample order of a training run with those of the Python program in benchmarks.

    python start_agreement.py <path of the program training_start>
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "benchmarks" / "train_against_python")]
import in_python as models  # noqa: E402
import same_start  # noqa: E402

SEED = 2**40 + 7
CASES = [(size, epoch) for size in (1, 2, 3, 10, 64, 65, 1000, 4097, 35_117) for epoch in (0, 1, 5)]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/weights.safetensors"
        printed = subprocess.run([sys.argv[1], file, str(SEED)], check=True, capture_output=True, text=True,
                                 input="".join(f"{size} {epoch}\n" for size, epoch in CASES),
                                 env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout
        weights = load_file(file)
    for (size, epoch), line in zip(CASES, printed.splitlines(), strict=True):
        if [int(word) for word in line.split()] != same_start.epoch_order(size, SEED, epoch).tolist():
            print(f"epoch {epoch} of {size} samples has another order in Python")
            return 1
    torch.set_num_threads(1)
    same_start.seed_generator(SEED)
    model = models.Gpt(vocabulary=60, context=16, layers=2, heads=4, width=32)
    same_start.initialise(model, 2)
    theirs = dict(model.named_parameters())
    wrong = sorted(name for name in weights.keys() | theirs.keys()
                   if name not in weights or name not in theirs or not torch.equal(weights[name], theirs[name]))
    if wrong:
        print(f"{len(wrong)} of {len(theirs)} weights differ: {', '.join(wrong)}")
        return 1
    print(f"{len(CASES)} orders and {len(theirs)} weights are bit-identical to Python's.")
    return 0


sys.exit(main())
