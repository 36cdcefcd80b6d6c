"""Compares lockstep's byte-pair tokenizer with tiktoken 0.14.0.

    python bpe_agreement.py <path of the program bpe_tokens>

A small table is learned from the files of this folder and written in the three formats that lockstep reads;
tiktoken gets the same ranks and GPT-2's pattern. Compared are every code point, random text of all classes, long
runs, and files of this checkout; more, and others, if LOCKSTEP_SOAK_SEED is set. It needs no download: gpt2_streams.py
tests GPT-2's own table. Exit code 0: they agree. 1: they do not. 77: skipped.
"""

import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import regex
    import tiktoken
    from tiktoken_ext.openai_public import r50k_pat_str
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for Python; tools/bootstrap test installs it")
    sys.exit(77)

NUM_MERGES = 600
NUM_TEXTS = 300
HERE = pathlib.Path(__file__).resolve().parent
# GPT-2's letters for bytes: printable bytes as themselves, the others as code points from U+0100.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
IN_ORDER = PRINTABLE + [b for b in range(256) if b not in PRINTABLE]
LETTERS = {byte: chr(byte) if i < len(PRINTABLE) else chr(0x100 + i - len(PRINTABLE)) for i, byte in enumerate(IN_ORDER)}


def learn(text: str) -> list[tuple[bytes, bytes]]:
    """The merges of byte-pair encoding, by the textbook algorithm."""
    words = collections.Counter(regex.findall(r50k_pat_str, text))
    pieces = {word: [bytes([b]) for b in word.encode()] for word in words}
    merges = []
    while len(merges) < NUM_MERGES:
        pairs = collections.Counter()
        for word, parts in pieces.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += words[word]
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word, parts in pieces.items():
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = [parts[i] + parts[i + 1]]
                i += 1
    return merges


def in_letters(data: bytes) -> str:
    return "".join(LETTERS[b] for b in data)


def write_forms(folder: pathlib.Path, merges, tokens, shuffled) -> None:
    lines = ["#version: 0.2", *(f"{in_letters(a)} {in_letters(b)}" for a, b in merges)]
    for name in ("merges", "shuffled"):
        (folder / name).mkdir()
        (folder / name / "vocab.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8")
    numbers = {in_letters(token): number for token, number in zip(tokens, shuffled)}
    numbers["<|endoftext|>"] = len(tokens)
    (folder / "shuffled" / "encoder.json").write_text(json.dumps(numbers))
    ranks = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / "small.tiktoken").write_bytes(b"".join(ranks))


def texts(draw: random.Random, count: int) -> list[str]:
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    spaced = " ".join(everything[i : i + 3] for i in range(0, len(everything), 3))
    found = [everything, spaced, "", " ", "  ", "\n", " a", "a ", "a  b", "a \n b\n\n", "don't I'll we've 're 'S''s"]
    found += ["a" * 70_000, " " * 5_000 + "x", "ab" * 3_000, "\u00a0\u3000 x", "it's" * 500, "é" * 2_000]
    found += [path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py"))]
    classes = [" ", " ", "\n\t\r\x0b\x85\u2003", "abcdefgz", "0123", "'sdmtlvre", "!?.,;-#", "éßñçøλДم漢字", "²½Ⅷ٣", "😀\u0301\u200d€", everything]
    for _ in range(count):
        pieces = []
        for _ in range(draw.randrange(1, 60)):
            kind = draw.choice(classes)
            pieces += [draw.choice(kind) for _ in range(draw.choice((1, 1, 2, 3, 9)))]
        found.append("".join(pieces))
    return found


def ours(program: str, table: pathlib.Path, files) -> list:
    out = subprocess.run([program, table, *files], check=True, stdout=subprocess.PIPE).stdout
    numbers = memoryview(out).cast("I")
    streams, at = [], 0
    while at < len(numbers):
        count = numbers[at]
        refused = count == 0xFFFFFFFF
        streams.append(None if refused else numbers[at + 1 : at + 1 + count].tolist())
        at += 1 if refused else 1 + count
    return streams


def main() -> int:
    soak = os.environ.get("LOCKSTEP_SOAK_SEED")
    draw = random.Random(int(soak) if soak else 7)
    merges = learn("".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py")))[:60_000])
    tokens = [bytes([b]) for b in IN_ORDER] + [a + b for a, b in merges]
    shuffled = list(range(len(tokens)))
    draw.shuffle(shuffled)
    theirs = tiktoken.Encoding(
        "small", pat_str=r50k_pat_str, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={}
    )
    samples = texts(draw, NUM_TEXTS * (10 if soak else 1))
    expected = [theirs.encode_ordinary(text) for text in samples]
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_forms(folder, merges, tokens, shuffled)
        files = [folder / f"text{i}" for i in range(len(samples))]
        for file, text in zip(files, samples):
            file.write_bytes(text.encode())
        for form, number in (
            ("small.tiktoken", lambda t: t),
            ("merges", lambda t: t),
            ("shuffled", lambda t: shuffled[t]),
        ):
            found = ours(sys.argv[1], folder / form, files)
            for i, (stream, wanted) in enumerate(zip(found, expected, strict=True)):
                if stream != [number(t) for t in wanted]:
                    print(f"{form}: text {i} differs: {samples[i][:80]!r}")
                    problems += 1
        broken = []
        for i, data in enumerate((b"\xff", b"a\xc0\xafb", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"caf\xc3")):
            broken.append(folder / f"broken{i}")
            broken[-1].write_bytes(data)
        if any(stream is not None for stream in ours(sys.argv[1], folder / "merges", broken)):
            print("text that is not UTF-8 was accepted")
            problems += 1
    print(f"{len(samples)} texts, {sum(map(len, expected))} tokens, 3 forms of the table, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
