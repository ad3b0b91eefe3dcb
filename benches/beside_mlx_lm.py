"""mlx-chat beside mlx-lm: the same shapes or the same folder, the same MLX, the same GPU, in turns.

    pip install "mlx[cuda13]==0.32.2" mlx-lm==0.32.2      (plain mlx on a Mac)
    cargo build --release
    python benches/beside_mlx_lm.py random:llama-8b random:llama-8b:4 [--runs 3] [--batch 1,8,32] [--ours PATH]

A model is a folder in mlx-community's layout, or random weights in a known shape: `random:llama-8b`, with `:4` or `:8` in
groups of 64 of so many bits. Each run decodes greedily for 100 tokens after prompts of 512, all sequences together, first here and then
there, after a short warm-up. Prints the median of each figure, and the ratio of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROMPT, GENERATED = 512, 100
OURS = Path(__file__).resolve().parent.parent / "target" / "release" / "mlx-chat"
SHAPES = {
    "llama-8b": dict(
        hidden_size=4096, num_hidden_layers=32, intermediate_size=14336, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, rope_theta=500000.0,
    ),
    "llama-1b": dict(
        hidden_size=2048, num_hidden_layers=16, intermediate_size=8192, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, rope_theta=500000.0, tie_word_embeddings=True,
    ),
}


def peers_model(name):
    """The model in mlx-lm, and the size of its vocabulary."""
    import mlx.core as mx
    import mlx.nn as nn

    if not name.startswith("random:"):
        from mlx_lm.utils import load_model

        model, config = load_model(Path(name))
        return model, config["vocab_size"]
    from mlx_lm.models import llama

    _, shape, *bits = name.split(":")
    settings = dict(model_type="llama", rms_norm_eps=1e-5, max_position_embeddings=8192, tie_word_embeddings=False)
    settings.update(SHAPES[shape])
    model = llama.Model(llama.ModelArgs(**settings))
    model.set_dtype(mx.bfloat16)
    if bits:
        nn.quantize(model, group_size=64, bits=int(bits[0]))
    mx.eval(model.parameters())
    return model, settings["vocab_size"]


def peer(name, batches):
    """mlx-lm's own batching, a line of JSON for each number of sequences."""
    from mlx_lm.generate import BatchGenerator

    model, vocabulary = peers_model(name)

    def measure(rows, prompt, generated):
        generator = BatchGenerator(model, completion_batch_size=rows, prefill_batch_size=min(8, rows))
        span = min(5000, vocabulary - 1000)
        prompts = [[1000 + (at * 37 + row * 101) % span for at in range(prompt)] for row in range(rows)]
        began = time.perf_counter()
        generator.insert(prompts, [generated] * rows)
        started, tokens, all_started, before = set(), 0, None, 0
        while tokens < rows * generated:
            answer = generator.next()
            for response in answer[1] if isinstance(answer, tuple) else answer:
                tokens += 1
                started.add(response.uid)
            now = time.perf_counter()
            if all_started is None and len(started) == rows:
                all_started, before = now, tokens
        return {
            "batch": rows,
            "prefill_tok_s": rows * prompt / (all_started - began),
            "decode_tok_s": (tokens - before) / (now - all_started),
        }

    # Twice: of a length that all kernels are used for, so that none is compiled while it is measured.
    measure(1, 16, 4)
    measure(1, PROMPT, 4)
    for rows in batches:
        measure(rows, PROMPT, 4)
        print(json.dumps(measure(rows, PROMPT, GENERATED)), flush=True)


def ours(path, name, batches):
    """Each number of sequences twice, the first time as a warm-up."""
    numbers = ",".join(str(rows) for rows in batches for _ in range(2))
    command = [path, "bench", "-m", name, "--batch", numbers, "--json"]
    command += ["--prompt", str(PROMPT), "--gen", str(GENERATED)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()][1::2]


def theirs(name, batches):
    command = [sys.executable, __file__, "--peer", name, "--batch", ",".join(map(str, batches))]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode != 0:
        sys.exit(f"mlx-lm failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("models", nargs="*")
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--batch", default="1,8,32")
    arguments.add_argument("--ours", default=str(OURS))
    arguments.add_argument("--peer", help=argparse.SUPPRESS)
    arguments = arguments.parse_args()
    batches = [int(rows) for rows in arguments.batch.split(",")]
    if arguments.peer:
        return peer(arguments.peer, batches)
    for model in arguments.models:
        figures = {}
        for run in range(arguments.runs):
            for who, lines in (("ours", ours(arguments.ours, model, batches)), ("mlx-lm", theirs(model, batches))):
                for line in lines:
                    for what in ("prefill_tok_s", "decode_tok_s"):
                        figures.setdefault((what, line["batch"]), {}).setdefault(who, []).append(line[what])
            print(f"{model}: run {run + 1} of {arguments.runs} done", file=sys.stderr, flush=True)
        for (what, rows), sides in sorted(figures.items()):
            here, there = (statistics.median(sides[who]) for who in ("ours", "mlx-lm"))
            print(f"{model} {what} batch {rows:>2}: {here:8.0f} mlx-lm {there:8.0f} ratio {here / there:.2f}", flush=True)


if __name__ == "__main__":
    main()
