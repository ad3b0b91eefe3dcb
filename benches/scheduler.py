"""What the scheduler's parts save, as ratios within one run.

    cargo build --release
    python benches/scheduler.py MODEL.gguf [--runs 3]

- A second turn of 64 new tokens after a conversation of 1,500: its time to first token beside the cold one's; from memory, and from
  disk after a restart.
- Seven rows decode while a prompt of 2,000 tokens comes: a row's longest time between two tokens beside its median, in chunks of that
  prompt with chunks between steps, and beside the median with the mixed iteration.
- An eighth row joins seven at 2,000 tokens of context: the longest of the steps after it beside the median, and the wait in which its
  cached prompt is copied and its last token read.
- Eight rows at 4,000 tokens of context with keys and values of 4 bits: decode beside that in full, and bytes beside float16's.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = Path(__file__).resolve().parent.parent / "target" / "release" / "mlx-chat"


def tokens(count, seed):
    """Some ids; the figures don't depend on which."""
    return [(7 * position + 131 * seed + 11) % 40_000 + 500 for position in range(count)]


def replay(model, lines, *flags):
    """The events of a workload, each with the time at which it was read, and its summary."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as workload:
        for line in lines:
            print(json.dumps({"ignore_eos": True, "sampling": {"temperature": 0}, **line}), file=workload)
        workload.flush()
        command = [OURS, "replay", workload.name, "-m", model, "--json", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            events = [{**json.loads(line), "t_ms": time.monotonic() * 1e3} for line in process.stdout]
    if process.returncode != 0:
        sys.exit(process.returncode)
    return events, events[-1]


def finish(events, name):
    return next(e for e in events if e["event"] == "finish" and e["id"] == name)


def answer(events, name):
    return [e["token"] for e in events if e["event"] == "token" and e["id"] == name]


def second_turn(model):
    conversation = tokens(1500, 1)
    with tempfile.TemporaryDirectory() as folder:
        files = ["--prompt-cache-dir", folder]
        first = {"id": "first", "prompt": conversation, "max_tokens": 8, "session": "s"}
        events, _ = replay(model, [first], *files)
        said = answer(events, "first")[:-1]
        second = {"id": "second", "prompt": conversation + said + tokens(64, 2), "max_tokens": 4, "session": "s"}
        cold, _ = replay(model, [second])
        cold = finish(cold, "second")["ttft_ms"]
        disk, _ = replay(model, [second], *files)
        disk = finish(disk, "second")
        both, _ = replay(model, [first, {**second, "at_step": 8}])
        memory = finish(both, "second")
    assert memory["cached_tokens"] >= 1500 and disk["cached_tokens"] >= 1500, (memory, disk)
    return {"second turn, from memory / cold": memory["ttft_ms"] / cold, "second turn, from disk / cold": disk["ttft_ms"] / cold}


def gaps(events, name):
    times = [e["t_ms"] for e in events if e["event"] == "token" and e["id"] == name]
    return [after - before for before, after in zip(times, times[1:])]


def stall(model):
    rows = [{"id": f"row{n}", "prompt": tokens(200, n), "max_tokens": 120} for n in range(7)]
    late = {"id": "late", "prompt": tokens(2000, 99), "max_tokens": 4, "at_step": 40}
    found = {}
    chunk = 512
    for name, flags in [("chunks", ["--prefill-chunk", str(chunk)]), ("mixed", ["--mixed-prefill"])]:
        events, _ = replay(model, [*rows, late], *flags)
        waits = gaps(events, "row0")
        median = statistics.median(waits)
        if name == "mixed":
            found["longest wait / median, mixed"] = max(waits) / median
        else:
            a_chunk = finish(events, "late")["prefill_ms"] * chunk / len(late["prompt"])
            found["(longest wait - median) / a chunk's time"] = (max(waits) - median) / a_chunk
        found[f"the prompt's time to first token, ms, {name}"] = finish(events, "late")["ttft_ms"]
    return found


def joining(model):
    rows = [{"id": f"row{n}", "prompt": tokens(2000, n), "max_tokens": 140, "session": f"s{n}"} for n in range(8)]
    # The eighth one's prompt is cached, so that nothing but its joining is left.
    before = {"id": "before", "prompt": rows[7]["prompt"], "max_tokens": 1, "session": "s7"}
    events, _ = replay(model, [before, *({**row, "at_step": 1} for row in rows[:7]), {**rows[7], "at_step": 60}])
    joined = next(e["t_ms"] for e in events if e["event"] == "token" and e["id"] == "row7")
    times = [e["t_ms"] for e in events if e["event"] == "token" and e["id"] == "row0"]
    at = sum(time <= joined for time in times)
    waits = gaps(events, "row0")
    median = statistics.median(waits[at + 8 :])
    return {
        "a row joins seven at 2,000 tokens, longest of 8 steps / median": max(waits[at : at + 8]) / median,
        "the wait in which it is taken in / median": max(waits[at - 2 : at]) / median,
    }


def quantized(model):
    lines = {}
    for name, flags in [("full", []), ("4 bits", ["--kv-bits", "4", "--kv-group-size", "64"])]:
        command = [OURS, "bench", "-m", model, "--json", "--batch", "8", "--prompt", "4000", "--gen", "24", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        lines[name] = json.loads(done.stdout.splitlines()[-1])
    per_token = {name: sum(run["bytes_per_token"] for run in line["kv_layers"]) for name, line in lines.items()}
    return {
        "decode at 4,000 tokens, 4 bits / full": lines["4 bits"]["decode_tok_s"] / lines["full"]["decode_tok_s"],
        "bytes of keys and values, 4 bits / float16": per_token["4 bits"] / (per_token["full"] / 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["second_turn", "stall", "joining", "quantized"])
    arguments = parser.parse_args()
    for part in (second_turn, stall, joining, quantized):
        if arguments.only in (None, part.__name__):
            runs = [part(arguments.model) for _ in range(arguments.runs)]
            for name in runs[0]:
                values = sorted(run[name] for run in runs)
                print(f"{name:<58} {statistics.median(values):8.3f}   ({values[0]:.3f} to {values[-1]:.3f})", flush=True)


if __name__ == "__main__":
    main()
