"""Compares lockstep's models with the same models in Python: logits, loss, gradients and buffers must be bit-identical.

    python model_agreement.py <path of the program model_gradients>

Both sides run one thread of the same LibTorch with the same weights, so only the order of operations could cause a
difference. The benchmark transformer is also compared with PyTorch's nn.TransformerEncoder.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import in_python as models  # noqa: E402

TRANSFORMER = dict(vocabulary=60, positions=16, width=32, heads=4, hidden=48, layers=2)
GPT = dict(vocabulary=60, context=16, layers=2, heads=4, width=32)


def outcome(model, data, target):
    models.fill(model)
    logits = model(data)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())
    loss.backward()
    found = {"logits": logits.detach(), "loss": loss.detach()}
    found |= {f"grad.{name}": weight.grad for name, weight in model.named_parameters()}
    found |= {f"buffer.{name}": value.float() for name, value in model.named_buffers()}
    return found


def different(ours, theirs):
    """The differences as text; empty if all tensors are bitwise equal."""
    if set(ours) != set(theirs):
        return f"lockstep has {sorted(set(ours) - set(theirs))} more, Python {sorted(set(theirs) - set(ours))}"
    for name, value in theirs.items():
        if ours[name].shape != value.shape:
            return f"{name} has shape {list(ours[name].shape)}, in Python {list(value.shape)}"
        if not torch.equal(ours[name], value):
            return f"{name} differs by up to {(ours[name] - value).abs().max():.3g}"
    return None


def main() -> int:
    torch.set_num_threads(1)
    tokens = models.made_up_tokens(3, 13, 60)
    text = tokens[:, :12], tokens[:, 1:]
    cases = {
        "mlp": (models.Mlp([48, 32, 32, 10]), models.made_up_numbers((16, 48)), models.made_up_classes(16, 10)),
        "transformer": (models.BenchmarkTransformer(**TRANSFORMER), *text),
        "gpt_tied": (models.Gpt(**GPT), *text),
        "gpt_separate": (models.Gpt(**GPT, tied=False), *text),
        "resnet_32": (models.ResNet18(width=4), models.made_up_numbers((4, 3, 32, 32)), models.made_up_classes(4, 10)),
        "resnet_28": (models.ResNet18(1, 7, 4), models.made_up_numbers((4, 1, 28, 28)), models.made_up_classes(4, 7)),
    }
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        for name, case in cases.items():
            theirs = outcome(*case)
            problem = different(load_file(f"{folder}/{name}.safetensors"), theirs)
            print(f"{name}: {problem or f'{len(theirs)} tensors are equal, bit for bit'}")
            failures += problem is not None

    # PyTorch's layers transpose batch and length, so gradients of weights are summed in another order: 36 terms, each
    # rounded to 2^-24 of values below 1.
    stock = models.BenchmarkTransformer(**TRANSFORMER, layer=torch.nn.TransformerEncoderLayer)
    stock_outcome = outcome(stock, *text)
    own_outcome = outcome(models.BenchmarkTransformer(**TRANSFORMER), *text)
    worst = max((own_outcome[name] - value).abs().max().item() for name, value in stock_outcome.items())
    bound = 36 * 2.0**-24 * max(1.0, max(value.abs().max().item() for value in stock_outcome.values()))
    print(f"transformer against nn.TransformerEncoder: largest difference {worst:.3g}, allowed {bound:.3g}")
    return 1 if failures or not 0 <= worst <= bound else 0


sys.exit(main())
