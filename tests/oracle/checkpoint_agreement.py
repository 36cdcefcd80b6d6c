"""Reads lockstep's checkpoints with Python, and Python's files with lockstep.

    python checkpoint_agreement.py PROGRAM COMMAND

PROGRAM is checkpoint_tensors, COMMAND the lockstep command. PROGRAM writes a checkpoint whose tensors follow a rule
(checkpoint_tensors.cpp). This script computes them by the same rule and reads every file of the checkpoint with the
safetensors package: names, dtypes, shapes and bytes must be equal. `ckpt export` must give the same tensors. A file
written by safetensors.torch.save_file must pass through `ckpt import` and PROGRAM without a changed byte. Exit code 0:
everything is equal. 1: not.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors
    import safetensors.torch
    import torch
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

DTYPES = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
          "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32,
          "F64": torch.float64}  # fmt: skip


def expected() -> dict[str, torch.Tensor]:
    tensors = {}
    for number, (name, dtype) in enumerate(DTYPES.items()):
        counting = (torch.arange(24 + number) * 7 + number) % 100
        tensors[f"plain.{name}"] = (counting % 2 == 1) if dtype == torch.bool else counting.to(dtype)
        tensors[f"matrix.{name}"] = tensors[f"plain.{name}"][:24].reshape(2, 3, 4).transpose(0, 2)
        tensors[f"scalar.{name}"] = tensors[f"plain.{name}"][5]
        tensors[f"empty.{name}"] = torch.empty(0, 3, dtype=dtype)
    return tensors


def same(left: dict, right: dict) -> list[str]:
    wrong = sorted(set(left) ^ set(right))
    for name in set(left) & set(right):
        a, b = left[name].contiguous(), right[name].contiguous()
        same_kind = a.dtype == b.dtype and a.shape == b.shape
        if not same_kind or not torch.equal(a.flatten().view(torch.uint8) if a.dim() and a.numel() else a,
                                            b.flatten().view(torch.uint8) if b.dim() and b.numel() else b):
            wrong.append(name)
    return wrong


def main() -> int:
    program, command = sys.argv[1:]
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, "save", folder / "run"], check=True)
        step = folder / "run/checkpoints/step-1"
        manifest = json.loads((step / "manifest.json").read_text())
        for record in manifest["files"]:
            size = (step / record["name"]).stat().st_size
            if size != record["bytes"]:
                failures.append(f"{record['name']} has {size} bytes, the manifest expects {record['bytes']}")
        failures += [f"model.safetensors: {n}" for n in same(safetensors.torch.load_file(step / "model.safetensors"), expected())]
        ranks = safetensors.torch.load_file(step / "rank-00000.safetensors")
        generator = torch.Generator()
        generator.manual_seed(5)
        failures += [f"rank-00000: {n}" for n in same(ranks, {"default_generator.state": generator.get_state()})]

        exported = folder / "model.safetensors"
        subprocess.run([command, "ckpt", "export", folder / "run", "-o", exported], check=True, capture_output=True)
        failures += [f"export: {n}" for n in same(safetensors.torch.load_file(exported), expected())]
        with safetensors.safe_open(exported, framework="pt") as opened:
            if opened.metadata() != {"format": "pt"}:
                failures.append(f"export: metadata {opened.metadata()}")

        changed = {n: (~t if t.dtype == torch.bool else t + 1).contiguous() for n, t in expected().items()}
        safetensors.torch.save_file(changed, folder / "python.safetensors")
        subprocess.run([command, "ckpt", "import", folder / "python.safetensors", "--to", folder / "imported"], check=True,
                       capture_output=True)
        subprocess.run([program, "again", folder / "imported"], check=True, capture_output=True)
        again = folder / "imported/checkpoints/step-1/model.safetensors"
        failures += [f"import: {n}" for n in same(safetensors.torch.load_file(again), changed)]
        ours, theirs = again.read_bytes(), safetensors.torch.save(changed)
        if ours != theirs:
            failures.append("the files that lockstep and Python write have different bytes")
    for failure in failures:
        print(failure)
    print(f"{4 * len(DTYPES)} tensors in both directions; {len(failures)} failures.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
