"""Whether MLX's `compile` makes a decode step faster: one of Llama 3.1 8B's shape by MLX's operations, compiled and not, in turns.

    pip install "mlx[cuda13]==0.32.2"      (plain mlx on a Mac)
    python benches/compiled_step.py [--batch 1,8] [--runs 3]

Caches go in and come out, and their offset is an array, so that one compiled step serves all positions. All columns are attended to, the same
in both. Prints tokens per second of each run, and what building a step takes on the host.
"""

import argparse
import statistics
import time

import mlx.core as mx

HIDDEN, INNER, QUERIES, KV, DIM, LAYERS, VOCABULARY = 4096, 14336, 32, 8, 128, 32, 128256
COLUMNS, START, STEPS, WARM_UP = 1024, 512, 80, 20


def weights():
    def random(*shape):
        return (mx.random.normal(shape) * 0.02).astype(mx.bfloat16)

    def norm():
        return mx.ones((HIDDEN,), dtype=mx.bfloat16)

    layers = [
        dict(
            norm=norm(), qkv=random((QUERIES + 2 * KV) * DIM, HIDDEN), output=random(HIDDEN, QUERIES * DIM),
            inner_norm=norm(), gate_up=random(2 * INNER, HIDDEN), down=random(HIDDEN, INNER),
        )
        for _ in range(LAYERS)
    ]
    rest = dict(embedding=random(VOCABULARY, HIDDEN), head=random(VOCABULARY, HIDDEN), norm=norm())
    mx.eval(layers, rest)
    return layers, rest


def step_of(rows, layers, rest):
    def turned(x, heads, offset):
        x = x.reshape(rows, heads, 1, DIM)
        return mx.fast.rope(x, DIM, traditional=False, base=5e5, scale=1.0, offset=offset)

    def step(tokens, offset, *held):
        x, written = rest["embedding"][tokens], []
        for at, layer in enumerate(layers):
            qkv = mx.fast.rms_norm(x, layer["norm"], 1e-5) @ layer["qkv"].T
            queries, key, value = mx.split(qkv, [QUERIES * DIM, (QUERIES + KV) * DIM], axis=-1)
            keys = mx.slice_update(held[2 * at], turned(key, KV, offset), offset, axes=[2])
            values = mx.slice_update(held[2 * at + 1], value.reshape(rows, KV, 1, DIM), offset, axes=[2])
            written += [keys, values]
            seen = mx.fast.scaled_dot_product_attention(
                turned(queries, QUERIES, offset), keys, values, scale=DIM**-0.5
            )
            x = x + seen.reshape(rows, QUERIES * DIM) @ layer["output"].T
            gate, up = mx.split(mx.fast.rms_norm(x, layer["inner_norm"], 1e-5) @ layer["gate_up"].T, 2, axis=-1)
            x = x + (gate * mx.sigmoid(gate) * up) @ layer["down"].T
        logits = mx.fast.rms_norm(x, rest["norm"], 1e-5) @ rest["head"].T
        return (mx.argmax(logits, axis=-1), offset + 1, *written)

    return step


def measure(step, rows):
    """Tokens per second, and milliseconds to build a step; the next step is built while one runs."""
    held = [mx.zeros((rows, KV, COLUMNS, DIM), dtype=mx.bfloat16) for _ in range(2 * LAYERS)]
    tokens, offset = mx.zeros((rows,), dtype=mx.int32), mx.array([START], dtype=mx.int32)
    mx.eval(held, tokens, offset)
    for number in range(WARM_UP + STEPS):
        if number == WARM_UP:
            mx.eval(tokens)
            began, building = time.perf_counter(), 0.0
        before = time.perf_counter()
        following, offset, *held = step(tokens, offset, *held)
        if number >= WARM_UP:
            building += time.perf_counter() - before
        mx.async_eval(following, offset, *held)
        mx.eval(tokens)
        tokens = following
    mx.eval(tokens)
    return rows * STEPS / (time.perf_counter() - began), 1e3 * building / STEPS


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--batch", default="1,8")
    arguments.add_argument("--runs", type=int, default=3)
    arguments = arguments.parse_args()
    layers, rest = weights()
    for rows in (int(rows) for rows in arguments.batch.split(",")):
        steps = {"plain": step_of(rows, layers, rest)}
        steps["compiled"] = mx.compile(step_of(rows, layers, rest))
        found = {name: [] for name in steps}
        for _ in range(arguments.runs):
            for name, step in steps.items():
                found[name].append(measure(step, rows))
        for name, runs in found.items():
            rates = ", ".join(f"{rate:.0f}" for rate, _ in runs)
            build = statistics.median(build for _, build in runs)
            print(f"batch {rows:>2} {name:>8}: {rates} tok/s, build {build:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
