#!/usr/bin/env python3
"""Writes a model for measuring speed: the shape of TinyLlama 1.1B with fewer layers and words, weights without meaning.

    make_speed_model.py TYPE FILE [MEGABYTES]

All matrices are of TYPE; there are as many layers as make a file of about MEGABYTES (200 if not given), which is more
than caches hold. The bytes are the same on every machine. Needs nothing but Python.
"""
import os
import random
import struct
import sys

WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 2048, 5632, 32, 4, 8192, 4096
ALIGNMENT = 32
LARGEST_WEIGHT = 0.1
F32 = 0

# name: (number in the file, weights a block, bytes a block, where its scales are, what a scale is multiplied with at
# most). A second scale is that of the minimum.
BLOCKS = {
    "Q4_0": (2, 32, 18, (0,), 8),
    "Q4_1": (3, 32, 20, (0, 2), 15),
    "Q5_0": (6, 32, 22, (0,), 16),
    "Q5_1": (7, 32, 24, (0, 2), 31),
    "Q8_0": (8, 32, 34, (0,), 127),
    "Q2_K": (10, 256, 84, (80, 82), 45),
    "Q3_K": (11, 256, 110, (108,), 128),
    "Q4_K": (12, 256, 144, (0, 2), 945),
    "Q5_K": (13, 256, 176, (0, 2), 1953),
    "Q6_K": (14, 256, 210, (208,), 4064),
    "IQ2_XXS": (16, 256, 66, (0,), 168),
    "IQ2_XS": (17, 256, 74, (0,), 168),
    "IQ3_XXS": (18, 256, 98, (0,), 480),
    "IQ1_S": (19, 256, 50, (0,), 17),
    "IQ4_NL": (20, 32, 18, (0,), 127),
    "IQ3_S": (21, 256, 110, (0,), 465),
    "IQ2_S": (22, 256, 82, (0,), 168),
    "IQ4_XS": (23, 256, 136, (0,), 4064),
    "TQ1_0": (34, 256, 54, (52,), 1),
    "TQ2_0": (35, 256, 66, (64,), 1),
}
# name: (number, bytes a weight, {place of a byte: (bits that stay random, bits that are set)}): the sign and the
# mantissa are random, the exponent says 2^-6.
FLOATS = {
    "F32": (0, 4, {3: (0x80, 0x3C), 2: (0x7F, 0x80)}),
    "F16": (1, 2, {1: (0x83, 0x24)}),
    "BF16": (30, 2, {1: (0x80, 0x3C), 0: (0x7F, 0x80)}),
}
MXFP4 = (39, 32, 17)  # its scale is a byte, an exponent of two
TYPES = sorted([*BLOCKS, *FLOATS, "MXFP4"])


def pattern(name, source):
    """Blocks of one type, about a megabyte of them, and (number in the file, weights a block, bytes a block)."""
    if name in FLOATS:
        number, size, places = FLOATS[name]
        data = bytearray(source.randbytes(size << 18))
        for place, (kept, fixed) in places.items():
            table = bytes(value & kept | fixed for value in range(256))
            data[place::size] = data[place::size].translate(table)
        return data, (number, 1, size)
    number, weights, size, scales, reach = BLOCKS.get(name) or (*MXFP4, (), 0)
    count = (1 << 20) // size
    data = bytearray(source.randbytes(count * size))
    if name == "MXFP4":
        data[0::size] = bytes([120]) * count
    half = struct.pack("<e", LARGEST_WEIGHT / reach) if scales else b""
    for place in scales:
        for byte in range(2):
            data[place + byte::size] = half[byte:byte + 1] * count
    return data, (number, weights, size)


def tensors(layers):
    """(name, innermost dimension first, whether it is a matrix) of the whole model. The embedding is the head too."""
    kv = WIDTH // HEADS * KV_HEADS
    yield "token_embd.weight", (WIDTH, VOCABULARY), True
    yield "output_norm.weight", (WIDTH,), False
    for layer in range(layers):
        for name, shape in (("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, kv)),
                            ("attn_v", (WIDTH, kv)), ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)),
                            ("ffn_gate", (WIDTH, INNER)), ("ffn_up", (WIDTH, INNER)), ("ffn_down", (INNER, WIDTH))):
            yield f"blk.{layer}.{name}.weight", shape, len(shape) == 2


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata(name, layers):
    """The keys and their values, encoded: 4 is an unsigned number, 6 a float, 8 a text."""
    pairs = [("general.architecture", 8, "llama"), ("general.name", 8, f"speed test {name}"),
             ("llama.context_length", 4, CONTEXT), ("llama.embedding_length", 4, WIDTH),
             ("llama.block_count", 4, layers), ("llama.feed_forward_length", 4, INNER),
             ("llama.attention.head_count", 4, HEADS), ("llama.attention.head_count_kv", 4, KV_HEADS),
             ("llama.rope.dimension_count", 4, WIDTH // HEADS),
             ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5)]
    encode = {4: lambda value: struct.pack("<I", value), 6: lambda value: struct.pack("<f", value), 8: text}
    return len(pairs), b"".join(text(key) + struct.pack("<I", kind) + encode[kind](value) for key, kind, value in pairs)


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def layer_weights():
    return sum(shape[0] * shape[1] for name, shape, matrix in tensors(1) if matrix and name.startswith("blk."))


def write(name, path, megabytes=200):
    """Writes the file whole or not at all; one of another size or kind under that name is replaced."""
    data, (number, weights, size) = pattern(name, random.Random(1))
    layers = max(1, round(megabytes * 1e6 / (layer_weights() * size / weights)))
    infos, places, offset = [], [], 0
    for tensor, shape, matrix in tensors(layers):
        count = shape[0] * (shape[1] if matrix else 1)
        length = count // weights * size if matrix else count * 4
        kind = number if matrix else F32
        infos.append(text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        places.append((matrix, length))
        offset += length + len(padding(length))
    pairs, keys = metadata(name, layers)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(infos), pairs) + keys + b"".join(infos)
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(header + padding(len(header)))
        for matrix, length in places:
            if matrix:
                # The pattern holds whole blocks, so every tensor may begin at its beginning.
                for _ in range(length // len(data)):
                    file.write(data)
                file.write(data[:length % len(data)])
            else:
                file.write(struct.pack("<f", 1.0) * (length // 4))
            file.write(padding(length))
    os.replace(part, path)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1].upper() not in TYPES:
        sys.exit(__doc__ + "\nTypes: " + " ".join(TYPES))
    write(sys.argv[1].upper(), sys.argv[2], float(sys.argv[3]) if len(sys.argv) == 4 else 200)
