"""Writes the seed corpus of manifests: valid ones, and one for each kind of hostile manifest.

Run from anywhere, with no argument, after a change here: it replaces the folder tests/fuzz/corpus/manifest_fuzz. The
bytes depend only on this file. The first byte of each file is for the fuzz target: "1" makes it append a matching
digest to the other bytes, "0" leaves them unchanged.
"""

import json
import pathlib
import shutil

CORPUS = pathlib.Path(__file__).parents[1] / "fuzz" / "corpus" / "manifest_fuzz"


def manifest(**changes) -> dict:
    fields = {
        "format": "lockstep checkpoint", "format_version": 1, "lockstep": "0.1.0", "step": 1200, "world": 2,
        "threads": 1, "seed": "7", "data_id": "00000000000000ff", "failures": 0, "reason": "periodic",
        "kept_as": [],        "configuration": {"lr": 0.001}, "states": {"sampler": {"epoch": 1, "position": 64}},
        "files": [{"name": "model.safetensors", "bytes": 400, "digest": "0123456789abcdef"},
                  {"name": "rank-00000.safetensors", "bytes": 5144, "digest": "00000000000000aa"}],
    }  # fmt: skip
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def body(fields: dict) -> bytes:
    """The text before the digest, as lockstep writes it."""
    return json.dumps(fields, indent=1).encode().removesuffix(b"\n}")


def cases() -> dict[str, bytes]:
    found = {
        "valid": body(manifest()),
        "valid_empty": body(manifest(files=[], states={}, configuration=None)),
        "valid_import": body(manifest(reason="import", step=0, world=1)),
        "valid_kept": body(manifest(kept_as=["best", "epoch-3"])),
        "kept_as_path": body(manifest(kept_as=["../best"])),
        "kept_as_number": body(manifest(kept_as=[7])),
        "no_step": body(manifest(step=...)),
        "unknown_field": body(manifest(more=1)),
        "newer_version": body(manifest(format_version=2)),
        "path_in_name": body(manifest(files=[{"name": "../x.safetensors", "bytes": 1, "digest": "0"}])),
        "listed_twice": body(manifest(files=[{"name": "a.safetensors", "bytes": 1, "digest": "0"}] * 2)),
        "negative_step": body(manifest(step=-1)),
        "step_of_128_bits": body(manifest(step=1 << 100)),
        "digest_is_number": body(manifest(files=[{"name": "a.safetensors", "bytes": 1, "digest": 0}])),
        "files_is_object": body(manifest(files={})),
        "states_is_array": body(manifest(states=[])),
        "seed_of_65_bits": body(manifest(seed=str(1 << 64))),
        "terminal_codes": body(manifest(reason="\x1b[2Jstop")),
        "twice": body(manifest()).replace(b'"step"', b'"world": 1, "step"'),
        "deep": b'{"configuration": ' + b"[" * 200,
        "many_objects": b'{"files": [' + b",".join([b"{}"] * 2000) + b"]",
        "huge_number": b'{"step": 1' + b"0" * 400,
        "not_utf8": b'{"format": "\xff\xfe"',
        "nul": b'{"format": "\x00"',
        "array": b"[1, 2",
        "nothing": b"",
    }
    sealed = {name: b"1" + text for name, text in found.items()}
    raw = {f"raw_{name}": b"0" + text + b"\n}\n" for name, text in found.items() if name in ("valid", "deep", "nothing")}
    return sealed | raw


if __name__ == "__main__":
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir(parents=True)
    for case, data in cases().items():
        (CORPUS / case).write_bytes(data)
    print(f"{len(cases())} files in {CORPUS}")
