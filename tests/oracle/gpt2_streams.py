"""Compares the tokens of whole corpora, with GPT-2's own table, with hashes computed by tiktoken 0.14.0.

    python gpt2_streams.py <path of the program bpe_tokens>

Needs the files of `lockstep data fetch gpt2-bpe`; if `shakespeare` and `sotu` have been fetched, they are compared too.
LibTorch's headers are always available. Exit code 0: all are equal. 1: not. 77: skipped.
"""

import array
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

# sha256 of the tokens as uint16, little-endian.
STREAMS = {
    "shakespeare": "3a3bec1799a1a64da23633cf809322338a1da5c467b749926d598b81663f7019",
    "sotu": "1ee99039d828bd3e720e8a459367236e397cb9d169bb5a11f9128eae4dded57b",
    "headers": "3e77d391d28690d272ad4cda77a0488822cd63468e2a5691f635f1ba86411dec",
}
HEADERS_TEXT = "668a611de14b5be8a9d061d9ae6977a1f4e17ac4c9c05ad2a94921d122de6f5d"


def headers() -> bytes | None:
    """LibTorch's headers of c10 and torch, equal on every Linux, concatenated in the order of their paths."""
    found = importlib.util.find_spec("torch")
    if found is None:
        return None
    include = pathlib.Path(found.origin).parent / "include"
    paths = (str(p.relative_to(include)) for top in ("c10", "torch") for p in (include / top).rglob("*.h"))
    chosen = sorted(p for p in paths if p != "c10/cuda/impl/cuda_cmake_macros.h")
    text = b"".join((include / path).read_bytes() for path in chosen)
    return text if hashlib.sha256(text).hexdigest() == HEADERS_TEXT else None


def main() -> int:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep" / "data"
    table = cache / "gpt2-bpe"
    if not table.is_dir():
        print("SKIPPED: GPT-2's table is not on this machine; `lockstep data fetch gpt2-bpe` downloads it")
        return 77
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        files = {name: cache / name / f"{name}.txt" for name in ("shakespeare", "sotu")}
        if (text := headers()) is not None:
            files["headers"] = pathlib.Path(temporary) / "headers.txt"
            files["headers"].write_bytes(text)
        for name, file in files.items():
            if not file.exists():
                print(f"{name}: not here")
                continue
            out = subprocess.run([sys.argv[1], table, file], check=True, stdout=subprocess.PIPE).stdout
            tokens = memoryview(out).cast("I")[1:]
            found = hashlib.sha256(array.array("H", tokens.tolist()).tobytes()).hexdigest()
            same = found == STREAMS[name]
            problems += not same
            print(f"{name}: {len(tokens)} tokens, {'equal' if same else 'DIFFERENT: ' + found}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
