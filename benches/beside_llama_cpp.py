"""mlx-chat beside llama.cpp: the same GGUF file, the same machine, in turns.

    pip install llama-cpp-python numpy
    cargo build --release
    python benches/beside_llama_cpp.py MODEL.gguf [--runs 5] [--threads 2]

Each run decodes greedily for 64 tokens after prompts of 128, one sequence and eight together, first here and then there.
Prints the median of each figure in tokens per second, all sequences together, and the ratio of the medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BATCHES = (1, 8)
PROMPT, GENERATED = 128, 64
OURS = Path(__file__).resolve().parent.parent / "target" / "release" / "mlx-chat"


def prompt_tokens(sequence, vocabulary):
    """Some ids, other ones for each sequence; the figures don't depend on which."""
    return [(7 * position + 131 * sequence + 11) % (vocabulary - 1000) + 500 for position in range(PROMPT)]


def llama_cpp(model_path, threads):
    """Decodes through the C interface, so that no Python is in the loop but one call a step."""
    import llama_cpp as llama
    import numpy as np

    silent = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(silent, None)
    llama.llama_backend_init()
    settings = llama.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(model_path.encode(), settings)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    for rows in BATCHES:
        settings = llama.llama_context_default_params()
        settings.n_ctx = rows * (PROMPT + GENERATED + 8)
        settings.n_batch = settings.n_ubatch = 512
        settings.n_seq_max = rows
        settings.n_threads = settings.n_threads_batch = threads
        context = llama.llama_init_from_model(model, settings)
        batch = llama.llama_batch_init(512, 0, 1)

        def put(slot, token, position, sequence, wants_logits):
            batch.token[slot], batch.pos[slot] = token, position
            batch.n_seq_id[slot], batch.seq_id[slot][0] = 1, sequence
            batch.logits[slot] = wants_logits

        def decode(count):
            batch.n_tokens = count
            if llama.llama_decode(context, batch) != 0:
                sys.exit("llama.cpp could not decode")

        def most_likely(slot):
            logits = llama.llama_get_logits_ith(context, slot)
            return int(np.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())

        began = time.perf_counter()
        current = []
        for sequence in range(rows):
            for position, token in enumerate(prompt_tokens(sequence, vocabulary)):
                put(position, token, position, sequence, position == PROMPT - 1)
            decode(PROMPT)
            current.append(most_likely(PROMPT - 1))
        prefilled = time.perf_counter()
        for step in range(GENERATED):
            for sequence, token in enumerate(current):
                put(sequence, token, PROMPT + step, sequence, True)
            decode(rows)
            current = [most_likely(slot) for slot in range(rows)]
        ended = time.perf_counter()
        figures = {
            "batch": rows,
            "prefill_tok_s": rows * PROMPT / (prefilled - began),
            "decode_tok_s": rows * GENERATED / (ended - prefilled),
        }
        print(json.dumps(figures), flush=True)
        llama.llama_batch_free(batch)
        llama.llama_free(context)


def figures_of(command):
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in map(json.loads, filter(None, lines)):
        found[f"decode B={line['batch']}"] = line["decode_tok_s"]
        found[f"prefill B={line['batch']}"] = line["prefill_tok_s"]
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--only-llama-cpp", action="store_true", help="one run of it alone, one JSON line a batch")
    chosen = arguments.parse_args()
    if chosen.only_llama_cpp:
        llama_cpp(chosen.model, chosen.threads)
        return
    batches = ",".join(map(str, BATCHES))
    sizes = ["--prompt", str(PROMPT), "--gen", str(GENERATED), "--threads", str(chosen.threads)]
    ours = [str(OURS), "bench", "-m", chosen.model, "--batch", batches, *sizes, "--json"]
    threads = ["--threads", str(chosen.threads)]
    theirs = [sys.executable, __file__, chosen.model, "--only-llama-cpp", *threads]
    runs = {"mlx-chat": [], "llama.cpp": []}
    for run in range(chosen.runs):
        for name, command in (("mlx-chat", ours), ("llama.cpp", theirs)):
            runs[name].append(figures_of(command))
            print(f"run {run + 1} {name}: {runs[name][-1]}", file=sys.stderr)
    print(f"{'tok/s, medians of ' + str(chosen.runs):<24}{'mlx-chat':>10}{'llama.cpp':>11}{'ratio':>8}")
    for figure in runs["mlx-chat"][0]:
        mine, other = (statistics.median(run[figure] for run in runs[name]) for name in runs)
        print(f"{figure:<24}{mine:>10.1f}{other:>11.1f}{mine / other:>8.2f}")


if __name__ == "__main__":
    main()
