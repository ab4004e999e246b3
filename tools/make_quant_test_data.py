#!/usr/bin/env python3
"""Writes tests/data/quant_blocks: blocks of every quantised type and the floats an independent decoder makes of them.

Needs numpy and the Python package gguf 0.19.0, whose dequantize() is that decoder; it has none for Q8_K, whose one-line
definition is written out below. The output depends on nothing but this file.

A file NAME.bin is little-endian: u32 sane blocks, u32 wild blocks, u32 bytes a block, u32 weights a block, all blocks,
all expected floats (f32). Sane blocks are random except for their scales, which are ordinary numbers of both signs; wild
blocks are random in every byte, and the first three have an infinity, a NaN and a subnormal number for a scale.

codebooks.bin holds the codebooks of the IQ types, one signed byte a value, since random blocks do not reach every entry of them.
"""

import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf import quants

BLOCKS = 8

CODEBOOKS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]

# Where the half-precision scales lie. None: no such field (MXFP4, Q8_K) or one in pieces (IQ1_M).
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": None,
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q8_K": None,
    "TQ1_0": [52], "TQ2_0": [64], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
    "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": None,
}


def ordinary_half(rng) -> int:
    value = rng.choice([-1.0, 1.0]) * 2.0 ** rng.uniform(-12, 0)
    return int(np.float16(value).view(np.uint16))


def put_scales(name: str, block: np.ndarray, halves: list[int]) -> None:
    """Sets a block's scales; `halves` are the bits of as many halves as the type has scales (at most two)."""
    if HALF_FIELDS[name] is not None:
        for offset, bits in zip(HALF_FIELDS[name], halves):
            block[offset : offset + 2] = np.frombuffer(struct.pack("<H", bits), np.uint8)
    elif name == "IQ1_M":
        for i in range(4):  # a nibble on top of each of the last four 16-bit words, the lowest first
            block[49 + 2 * i] = (block[49 + 2 * i] & 0x0F) | ((halves[0] >> (4 * i)) & 15) << 4
    elif name == "Q8_K":
        value = np.array([halves[0]], np.uint16).view(np.float16).astype(np.float32)
        block[:4] = value.view(np.uint8)
    elif name == "MXFP4":
        block[0] = 100 + halves[0] % 40


def decode(name: str, blocks: np.ndarray) -> np.ndarray:
    if name == "Q8_K":
        scale = blocks[:, :4].copy().view(np.float32)
        return scale * blocks[:, 4:260].copy().view(np.int8).astype(np.float32)
    return quants.dequantize(blocks, GGMLQuantizationType[name])


def codebook_bytes(name: str) -> bytes:
    quant = getattr(quants, name)
    quant.init_grid()
    return quant.grid.astype(np.int8).tobytes()


def main() -> None:
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests/data/quant_blocks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "codebooks.bin").write_bytes(b"".join(codebook_bytes(name) for name in CODEBOOKS))
    for number, name in enumerate(HALF_FIELDS):
        rng = np.random.default_rng(1000 + number)
        weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        blocks = rng.integers(0, 256, (2 * BLOCKS, size), dtype=np.uint8)
        for block in blocks[:BLOCKS]:
            put_scales(name, block, [ordinary_half(rng), ordinary_half(rng)])
        if name == "MXFP4":  # the ends of the exponent instead, two of which are subnormal scales
            blocks[BLOCKS : BLOCKS + 4, 0] = [0, 1, 254, 255]
        else:
            for block, bits in zip(blocks[BLOCKS:], [0x7C00, 0xFE01, 0x8003]):
                put_scales(name, block, [bits, ordinary_half(rng)])
        with np.errstate(all="ignore"):
            values = decode(name, blocks).astype("<f4")
        header = struct.pack("<4I", BLOCKS, BLOCKS, size, weights)
        (folder / f"{name}.bin").write_bytes(header + blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
