"""Writes the seeds of the fuzz target tokenizers_fuzz: small tokenizer files and texts.

    python make_tokenizers_corpus.py <folder>

A seed is one byte (0 vocab.bpe, 1 encoder.json, 2 a tiktoken file, 3 text), then the file.
"""

import base64
import json
import pathlib
import sys

import bpe_agreement as small

# The merges of src/lockstep/tokenizers/table_files.cpp: encoder.json is read together with that vocab.bpe.
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"a", b"a"), (b"aa", b"aa"), (b"r", b"e"), (b"the", b"re"), (b" ", b" ")]
TOKENS = [bytes([b]) for b in small.IN_ORDER] + [a + b for a, b in MERGES]
MERGE_LINES = "".join(f"{small.in_letters(a)} {small.in_letters(b)}\n" for a, b in MERGES)
NUMBERS = {small.in_letters(token): i for i, token in enumerate(TOKENS)}
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(TOKENS))

SEEDS = {
    "vocab_bpe": (0, "#version: 0.2\n" + MERGE_LINES),
    "vocab_bpe_no_version": (0, MERGE_LINES),
    "vocab_bpe_unknown_part": (0, "x yz\n"),
    "vocab_bpe_merge_twice": (0, "a b\na b\n"),
    "encoder_json": (1, json.dumps({**NUMBERS, "<|endoftext|>": len(NUMBERS)})),
    "encoder_json_gap": (1, json.dumps({**NUMBERS, "zz": len(NUMBERS) + 1})),
    "encoder_json_nested": (1, '{"a":{"b":1}}'),
    "encoder_json_array": (1, "[[[[[1]]]]]"),
    "tiktoken": (2, RANKS),
    "tiktoken_bad_base64": (2, b"YR== 0\n"),
    "tiktoken_rank_twice": (2, RANKS + b"YWFhYWFh 0\n"),
    "tiktoken_unreachable": (2, RANKS + b"eHl6 %d\n" % len(TOKENS)),
    "text": (3, "Don't  stop\n\n 123 the there aaaaaaaa \u00e9\u6f22\U0001f600\u00a0x "),
    "text_not_utf8": (3, b"caf\xe9"),
    "text_long_piece": (3, "a" * 300),
}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, data) in SEEDS.items():
        (folder / name).write_bytes(bytes([kind]) + (data.encode() if isinstance(data, str) else data))


if __name__ == "__main__":
    main()
