"""Compares lockstep's safetensors reader with the reference, the Python package safetensors 0.8.0.

    python safetensors_agreement.py <path of the program safetensors_verdict>

The files are the stored corpus, a few large files, and random mutations of the valid ones (the same in
every run; more, and others, if LOCKSTEP_SOAK_SEED is set). Compared are accept or reject, and for accepted
files each tensor's name, dtype, shape and bytes. lockstep may refuse what the reference accepts only for
the reasons in KNOWN_DIFFERENCES, and never the other way round. Exit code 0: they agree. 1: they do not, or
a row of the table no longer shows a difference. 77: skipped.
"""

import importlib.metadata
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

import make_safetensors_corpus as seeds

REFERENCE_VERSION = "0.8.0"
NUM_MUTATIONS = 600
FILES_PER_CALL = 200  # command lines have a length limit


class Difference(NamedTuple):
    shown_by: tuple[str, ...]  # files of the corpus, or large ones, that only lockstep refuses
    our_words: str  # a pattern of lockstep's message, to find the mutations that differ for this reason
    reason: str


KNOWN_DIFFERENCES = (
    Difference(
        ("leading_space", "leading_newline"),
        r"expected it to start with \{",
        "the specification: the header begins with {; the reference skips white space before it",
    ),
    Difference(
        ("trailing_newline", "trailing_tab_then_space"),
        r"expected it to end with \} and only spaces",
        "the specification: padding is 0x20; the reference accepts any white space of JSON",
    ),
    Difference(
        ("duplicate_key", "duplicate_key_empty", "duplicate_key_by_escape"),
        r"invalid: tensor .* appears twice",
        "the specification: no duplicate keys; the reference keeps the last one if offsets still match",
    ),
    Difference(
        ("duplicate_metadata_key",),
        r"invalid: the __metadata__ key .* appears twice",
        "the specification: no duplicate keys; the reference keeps the last value",
    ),
    Difference(
        ("metadata_null",),
        r'the key "__metadata__" is null',
        "the specification: a map of strings; the reference accepts null for a missing map",
    ),
    Difference(
        ("unknown_field", "unknown_field_nested"),
        r"expected only dtype, shape and data_offsets",
        "an ignored field could change a tensor's meaning, and ignored JSON can be nested without bound",
    ),
    Difference(
        ("tensor_is_array",),
        r"invalid: tensor .* is an array",
        "the specification: an object; serde also reads a struct from an array of its fields",
    ),
    Difference(
        ("dtype_is_object",),
        r"the dtype of tensor .* is an object",
        "the specification: a string; serde also reads an enum from an object of one key",
    ),
    Difference(
        ("overflow_after_zero",),
        r"overflows, expected fewer than 2\^64 bits",
        "strides use the sizes after a zero too, and would overflow; the reference stops at the zero",
    ),
    Difference(
        ("shape_rank_65",),
        r"the shape of tensor .* more numbers than expected, at most 64",
        "torch and numpy support 64 dimensions; the reference has no limit",
    ),
    Difference(
        ("large_metadata_value",),
        r"more than 1048576 bytes",
        "bounds memory: the JSON parser stores a token more than once; the reference has no limit",
    ),
    Difference(
        ("large_metadata_key_count",),
        r"__metadata__ has more keys than expected, at most 100000",
        "bounds memory: a key costs ten times its JSON; the reference has no limit",
    ),
)


class Verdict(NamedTuple):
    tensors: dict | None  # name -> (dtype, shape, bytes); None when refused
    message: str


def reference_verdict(data: bytes) -> Verdict:
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        return Verdict(None, str(error))
    named = {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in tensors}
    return Verdict(named, "")


def our_verdict(data: bytes, lines: list[str]) -> Verdict:
    if lines[0].startswith("reject: "):
        return Verdict(None, lines[0])
    header_end = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for line in lines[1:]:
        dtype, begin, end, sizes, name = line.split(" ")
        shape = [] if sizes == "-" else [int(size) for size in sizes.split(",")]
        own_bytes = data[header_end + int(begin) : header_end + int(end)]
        tensors[bytes.fromhex(name).decode()] = (dtype, shape, own_bytes)
    return Verdict(tensors, "")


def our_verdicts(program: str, files: dict[str, bytes]) -> dict[str, Verdict]:
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            pathlib.Path(folder, name).write_bytes(data)
        names = list(files)
        for start in range(0, len(names), FILES_PER_CALL):
            batch = names[start : start + FILES_PER_CALL]
            call = [program] + [f"{folder}/{name}" for name in batch]
            text = subprocess.run(call, check=True, capture_output=True, text=True).stdout
            blocks = re.split(r"^file .*\n", text, flags=re.MULTILINE)[1:]
            for name, block in zip(batch, blocks, strict=True):
                verdicts[name] = our_verdict(files[name], block.splitlines())
    return verdicts


PIECES = (
    "{", "}", "[", "]", ",", ":", '"', " ", "\n", "0", "1", "-", "1.5", "4294967296", "null", "true",
    '"w"', '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', '"F32"', '"F4"', "[0,4]", "\\u0000",
    '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},', '"x":[],', '"__metadata__":{"a":"b"},',
)  # fmt: skip


def mutated(source: bytes, rng: random.Random) -> bytes:
    """One to three small changes to the header's text; in most cases the length is corrected."""
    header_end = 8 + int.from_bytes(source[:8], "little")
    header, data = bytearray(source[8:header_end]), source[header_end:]
    for _ in range(rng.randint(1, 3)):
        at, stop = sorted(rng.randint(0, len(header)) for _ in range(2))
        kind = rng.randrange(6)
        if kind == 0:
            header[at:at] = rng.choice(PIECES).encode()
        elif kind == 1:
            header[at : at + rng.randint(1, 3)] = b""
        elif kind == 2:
            header[stop:stop] = header[at:stop]
        elif kind == 3 and header:
            header[rng.randrange(len(header))] = rng.randrange(256)
        elif kind == 4:
            digits = [i for i, byte in enumerate(header) if chr(byte).isdigit()]
            if digits:
                header[rng.choice(digits)] = ord(rng.choice("0123456789"))
        elif kind == 5:
            data = data[: rng.randint(0, len(data))] if rng.random() < 0.5 else data + b"\0"
    result = seeds.framed(bytes(header), data)
    if rng.random() < 0.05:
        result = rng.randrange(1 << 20).to_bytes(8, "little") + result[8:]
    return result


def reordered(source: bytes, rng: random.Random) -> bytes:
    """A change that keeps the file valid: another order of fields and tensors, other white space."""
    header_end = 8 + int.from_bytes(source[:8], "little")
    items = list(json.loads(source[8:header_end]).items())
    rng.shuffle(items)
    shuffled = {}
    for name, fields in items:
        pairs = list(fields.items())
        rng.shuffle(pairs)
        shuffled[name] = dict(pairs)
    text = json.dumps(shuffled, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)
    return seeds.framed(text.encode() + b" " * rng.randrange(9), source[header_end:])


def mutations() -> dict[str, bytes]:
    soak_seed = os.environ.get("LOCKSTEP_SOAK_SEED")
    rng = random.Random(soak_seed or 20240)
    sources = list(seeds.valid().values())
    result = {}
    for i in range(NUM_MUTATIONS * (10 if soak_seed else 1)):
        change = reordered if i % 6 == 0 else mutated
        result[f"mutation_{i:04}"] = change(rng.choice(sources), rng)
    return result


def has_duplicate_key(data: bytes) -> bool:
    """Whether an object of the header has a key twice: the reference then ignores errors of the first value,
    while lockstep refuses the file at the first error."""
    found = []

    def check(pairs: list) -> dict:
        found.append(len({key for key, _ in pairs}) != len(pairs))
        return {}

    json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")], object_pairs_hook=check)
    return any(found)


def failure(name: str, data: bytes, ours: Verdict, theirs: Verdict) -> str | None:
    """The error of this pair of verdicts; None if they agree or the table has the reason."""
    if ours.tensors is None and theirs.tensors is None:
        return None
    if ours.tensors is None:
        if any(re.search(known.our_words, ours.message) for known in KNOWN_DIFFERENCES):
            return None
        if has_duplicate_key(data):
            return None
        return f"{name}: the reference accepts, lockstep does not, and the table has no row: {ours.message}"
    if theirs.tensors is None:
        return f"{name}: lockstep accepts what the reference refuses: {theirs.message}"
    if ours.tensors != theirs.tensors:
        return f"{name}: both accept, and read {ours.tensors} (lockstep), {theirs.tensors} (reference)"
    return None


def stale_rows(ours: dict[str, Verdict], theirs: dict[str, Verdict]) -> list[str]:
    stale = []
    for known in KNOWN_DIFFERENCES:
        for name in known.shown_by:
            differs = ours[name].tensors is None and theirs[name].tensors is not None
            if not differs or not re.search(known.our_words, ours[name].message):
                stale.append(f"{name}: the table says that only lockstep refuses it, for /{known.our_words}/; "
                             f"lockstep: {ours[name].message or 'accepts'}, reference: "
                             f"{theirs[name].message or 'accepts'}. Correct or remove the row.")  # fmt: skip
    return stale


def main() -> int:
    if len(sys.argv) != 2:
        print("Give the path of the program safetensors_verdict as the only argument.")
        return 1
    stored = {path.name: path.read_bytes() for path in sorted(seeds.CORPUS.iterdir())}
    if stored != seeds.corpus():
        print(f"{seeds.CORPUS} differs from the output of make_safetensors_corpus.py: run it again.")
        return 1
    files = stored | seeds.large_cases() | mutations()
    ours = our_verdicts(sys.argv[1], files)
    theirs = {name: reference_verdict(data) for name, data in files.items()}
    failures = [failure(name, files[name], ours[name], theirs[name]) for name in files]
    failures = [text for text in failures if text] + stale_rows(ours, theirs)
    for text in failures:
        print(text)
    both = sum(ours[n].tensors is not None and theirs[n].tensors is not None for n in files)
    neither = sum(ours[n].tensors is None and theirs[n].tensors is None for n in files)
    print(f"{len(files)} files: {both} accepted by both, {neither} refused by both, "
          f"{len(files) - both - neither} differ; {len(failures)} failures.")  # fmt: skip
    return 1 if failures else 0


try:
    import safetensors

    found = importlib.metadata.version("safetensors")
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)
if found != REFERENCE_VERSION:
    print(f"SKIPPED: safetensors {found} is installed, the table of differences is for {REFERENCE_VERSION}; "
          f"pip install safetensors=={REFERENCE_VERSION}")  # fmt: skip
    sys.exit(77)

if __name__ == "__main__":
    sys.exit(main())
