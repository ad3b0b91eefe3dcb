"""Blocks of every quantized type that is read, and what they stand for by the reference of the `gguf` package.

    pip install gguf==0.19.0 mlx[cpu]==0.32.2
    python tests/gguf/vectors.py > tests/gguf/vectors.txt
    python tests/gguf/vectors.py mlx > tests/model_loading/microscaled.txt

A line: the type, two rows' bytes (for MLX: words, then scales), the floats' bytes; all as hex, little-endian.
"""

import sys

import numpy as np

rng = np.random.default_rng(4)


def halves(count):
    """Scales of either sign, from subnormal ones to large ones."""
    return (rng.choice([-1, 1], count) * 2.0 ** rng.uniform(-24, 4, count)).astype(np.float16)


def blocks():
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    # Where a block's halves lie.
    places = {
        "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": [],
        "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    }
    for name, at in places.items():
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        count = 2 if elements == 256 else 4
        rows = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for place in at:
            rows[:, place : place + 2] = halves(count).view(np.uint8).reshape(count, 2)
        if name == "MXFP4":
            rows[:, 0] = [0, 1, 120, 250]
        floats = dequantize(rows.reshape(2, -1), kind)
        print(name, rows.tobytes().hex(), floats.astype("<f4").tobytes().hex())


def microscaled():
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    mx.random.seed(4)
    for mode, bits, group in [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)]:
        random = np.array(mx.random.randint(0, 2**31, (2, 64 * bits // 32)).astype(mx.uint32))
        scales = rng.integers(0, 254, (2, 64 // group), dtype=np.uint8)
        quantized = mx.quantize(mx.random.normal((2, 64)), group_size=group, bits=bits, mode=mode)
        for packed, scales in [map(np.array, quantized), (random, scales)]:
            floats = mx.dequantize(mx.array(packed), mx.array(scales), group_size=group, bits=bits, mode=mode)
            floats = np.array(floats.astype(mx.float32))
            print(mode, packed.tobytes().hex(), scales.tobytes().hex(), floats.tobytes().hex())


if __name__ == "__main__":
    microscaled() if "mlx" in sys.argv else blocks()
