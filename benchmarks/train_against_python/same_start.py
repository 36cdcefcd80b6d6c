"""The initial weights and the order of the samples of a run of `lockstep train`, computed in Python.

Written from the definitions in base/random.h, data/permutation.h and train/seeds.h, with numpy's own Philox, so that
the peer trains the same model on the same batches without a file in between.
"""

import numpy
import torch

WORD = 2**64 - 1
HALF = 2**32 - 1


def purpose(word):
    """64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for letter in word.encode():
        value = (value ^ letter) * 0x100000001B3 & WORD
    return value


def stream(seed, word, first, second, count):
    """The first `count` numbers of the stream at (first, second) of the key (seed, word)."""
    counter = ((second << 128) | (first << 64)) - 1 & (2**256 - 1)  # numpy increments the counter before it computes a block
    words = [(counter >> shift) & WORD for shift in (0, 64, 128, 192)]
    generator = numpy.random.Philox(counter=numpy.array(words, numpy.uint64),
                                    key=numpy.array([seed, purpose(word)], numpy.uint64))
    return generator.random_raw(count)


def mix(half, before, between):
    word = (half + before) * 0x85EBCA6B & HALF
    word ^= word >> 13
    word = (word + between) * 0xC2B2AE35 & HALF
    return word ^ (word >> 16)


def epoch_order(size, seed, epoch):
    """The sample at every position of an epoch, in lockstep's native order: a Feistel network with cycle walking."""
    bits = max(1, (size - 1).bit_length())
    left_bits, right_bits = (bits + 1) // 2, bits // 2
    left_mask, right_mask = (1 << left_bits) - 1, (1 << right_bits) - 1
    rounds = 24 if bits <= 6 else 12 if bits <= 12 else 8
    keys = [(int(word) & HALF, int(word) >> 32) for word in stream(seed, "order", epoch, 0, rounds)]
    values = numpy.arange(size, dtype=numpy.uint64)
    outside = numpy.ones(size, dtype=bool)
    while outside.any():
        left, right = values[outside] >> right_bits, values[outside] & right_mask
        for even, odd in zip(keys[::2], keys[1::2]):
            left ^= mix(right, *even) & left_mask
            right ^= mix(left, *odd) & right_mask
        values[outside] = (left << right_bits) | right
        outside = values >= size
    return values.astype(numpy.int64)


def samples(size, seed, global_batch):
    """The samples of every step, on all ranks. The tail of an epoch, which does not fill a batch, is dropped."""
    epoch = 0
    while True:
        order = epoch_order(size, seed, epoch)
        for first in range(0, size // global_batch * global_batch, global_batch):
            yield order[first:first + global_batch]
        epoch += 1


def seed_generator(seed):
    """Sets torch's default generator as Seeds::begin_shared("weights") does: the Mersenne twister's whole state."""
    drawn = stream(seed, "shared: weights", 0, 0, 1 + 312)
    # CPUGeneratorImpl's state: seed, then left and seeded as int32, next, 624 words of 64 bits, the normal's leftovers.
    state = torch.get_rng_state().numpy().copy()
    words = state[:8 * (3 + 624)].view(numpy.uint64)
    words[0] = drawn[0]
    words[1] = 1 | 1 << 32  # left, seeded
    words[2] = 0
    words[3::2] = drawn[1:] & HALF
    words[4::2] = drawn[1:] >> numpy.uint64(32)
    state[8 * (3 + 624):] = 0
    torch.set_rng_state(torch.from_numpy(state))


def initialise(model, layers):
    """GPT-2's initial weights, drawn in the order of models/gpt.cpp. The generator is in its state after the modules are made."""
    deviation = 0.02
    for name, weight in model.named_parameters():
        if "ln_" in name:
            continue
        if name.endswith("bias"):
            torch.nn.init.zeros_(weight)
        else:
            torch.nn.init.normal_(weight, 0, deviation / (2 * layers) ** 0.5 if name.endswith("c_proj.weight") else deviation)
