"""Compares lockstep's readers with independent writers: numpy, safetensors, zipfile, gzip, csv, json, struct.

    python formats_agreement.py <path of the program formats_dump>

Writes files of every format with random shapes, types and contents (the same in every run; more, and others, if
LOCKSTEP_SOAK_SEED is set) and compares everything that lockstep reads from them. Exit code 0: everything is equal. 1:
not. 77: skipped.
"""

import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors.numpy

    import make_formats_corpus as writers
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

ROUNDS = 12
DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
IDX_CODES = {"u1": 8, "i1": 9, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def hexed(data: bytes) -> str:
    return "x" + data.hex()


def array_line(name: str, array) -> str:
    sizes = ",".join(map(str, array.shape)) or "-"
    little = array.astype(array.dtype.newbyteorder("<"))
    return f"array {hexed(name.encode())} {array.dtype.newbyteorder('=').name} {sizes} {hexed(little.tobytes())}"


class Writer:
    """Writes one file of every kind per round, and keeps the lines that lockstep should print for it."""

    def __init__(self, folder: pathlib.Path, seed: int):
        self.folder = folder
        self.draw = random.Random(seed)
        self.numbers = numpy.random.default_rng(seed)
        self.expected: dict[str, list[str]] = {}

    def array(self, dtype: str, min_dims: int = 0):
        shape = [self.draw.choice((1, 2, 3, 7)) for _ in range(self.draw.randrange(min_dims, 4))]
        size = int(numpy.prod(shape, dtype=int)) * numpy.dtype(dtype).itemsize
        data = self.numbers.integers(0, 2 if dtype == "?" else 256, size, dtype="u1").tobytes()
        return numpy.frombuffer(data, dtype=dtype).reshape(shape)

    def add(self, name: str, data: bytes, kind: str, lines: list[str]) -> None:
        path = self.folder / name
        path.write_bytes(data)
        self.expected[str(path)] = [kind, *lines]

    def text(self) -> str:
        alphabet = 'ab ,"\n\r\té漢😀\\'
        return "".join(self.draw.choice(alphabet) for _ in range(self.draw.randrange(0, 12)))

    def round(self, n: int) -> None:
        for dtype in DTYPES:
            one = self.array(dtype)
            self.add(f"{n}_{DTYPES.index(dtype)}.npy", writers.npy(one), "npy array", [array_line("", one)])
        several = {f"a{i}": self.array(self.draw.choice(DTYPES)) for i in range(self.draw.randrange(0, 5))}
        for save in (numpy.savez, numpy.savez_compressed):
            lines = [array_line(name, array) for name, array in several.items()]
            self.add(f"{n}_{save.__name__}.npz", writers.npz(save, **several), "npz arrays", lines)
        # The safetensors package orders tensors by alignment, so the lines are compared sorted.
        data = safetensors.numpy.save(several or {"only": numpy.zeros(2, "f4")})
        lines = sorted(array_line(k, v) for k, v in (several or {"only": numpy.zeros(2, "f4")}).items())
        self.add(f"{n}.safetensors", data, "safetensors tensors", lines)
        for dtype, code in IDX_CODES.items():
            one = self.array(dtype, 1)
            plain = writers.idx(code, one)
            self.add(f"{n}_{dtype}-idx", plain, "IDX array", [array_line("", one)])
            self.add(f"{n}_{dtype}-idx.gz", gzip.compress(plain), "IDX array", [array_line("", one)])
        self.tokens(n)
        self.images(n)
        rows = [[self.text() for _ in range(3)] for _ in range(self.draw.randrange(1, 9))]
        for ending in ("\n", "\r\n"):
            data = writers.table(rows, lineterminator=ending)
            lines = ["row " + " ".join(hexed(field.encode()) for field in row) for row in rows]
            self.add(f"{n}_{len(ending)}.csv", data, "CSV table", lines)
        texts = [self.text() for _ in range(5)]
        data = "".join(json.dumps({"n": [1, {"text": 0}], "text": t}, ensure_ascii=n % 2 == 0) + "\n" for t in texts)
        self.add(f"{n}.jsonl", data.encode(), "JSON lines", ["document " + hexed(t.encode()) for t in texts])
        lines = [t.replace("\n", "").replace("\r", "") for t in texts]
        data = "\n".join(lines).encode()
        self.add(f"{n}.txt", data, "text", ["document " + hexed(t.encode()) for t in lines if t])

    def tokens(self, n: int) -> None:
        count = self.draw.randrange(0, 40)
        for dtype, name in (("<u2", "u16"), ("<u4", "u32")):
            tokens = self.numbers.integers(0, 2 ** (16 if dtype == "<u2" else 32), count, dtype=dtype)
            line = [array_line("", tokens.astype("<i8"))]
            self.add(f"{n}.{name}", tokens.tobytes(), "raw tokens", line)
            magic, version = (20240520, 1) if dtype == "<u2" else (20240801, 7)
            self.add(f"{n}_llmc_{name}.bin", writers.llmc(magic, version, tokens), "llm.c tokens", line)

    def images(self, n: int) -> None:
        for label_bytes, classes in ((1, 10), (2, 100)):
            data, lines = b"", []
            for _ in range(self.draw.randrange(1, 4)):
                label = self.draw.randrange(classes)
                pixels = self.numbers.integers(0, 256, 3072, dtype="u1").tobytes()
                data += (b"" if label_bytes == 1 else bytes([self.draw.randrange(20)])) + bytes([label]) + pixels
                lines.append(f"image {label} {hexed(pixels)}")
            self.add(f"{n}_cifar{classes}.bin", data, "CIFAR", lines)


def main() -> int:
    soak = os.environ.get("LOCKSTEP_SOAK_SEED")
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        writer = Writer(pathlib.Path(temporary), int(soak) if soak else 7)
        for n in range(ROUNDS * (5 if soak else 1)):
            writer.round(n)
        paths = list(writer.expected)
        for begin in range(0, len(paths), 200):
            out = subprocess.run([sys.argv[1], *paths[begin : begin + 200]], check=True, stdout=subprocess.PIPE).stdout
            found: dict[str, list[str]] = {}
            for line in out.decode().splitlines():
                if line.startswith("file "):
                    _, path, kind = line.split(" ", 2)
                    found[path] = [kind]
                else:
                    found[path].append(line)
            for path in paths[begin : begin + 200]:
                lines = found[path]
                if path.endswith(".safetensors"):
                    lines = lines[:1] + sorted(lines[1:])
                if lines != writer.expected[path]:
                    print(f"{path}:\n  expected {str(writer.expected[path])[:300]}\n  found    {str(lines)[:300]}")
                    problems += 1
    print(f"{len(paths)} files of {len(set(lines[0] for lines in writer.expected.values()))} kinds, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
