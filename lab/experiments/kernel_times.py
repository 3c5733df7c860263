#!/usr/bin/env python3
"""Time of a CUDA program by kernel, in lines of JSON.

    kernel_times.py --label lstm -- hardware graphs --network lstm --batch 128 --steps 40 --runs plain

Requires a C compiler and CUPTI of a CUDA toolkit, but no Nsight. Only the last --seconds of the program count, from a
read of the device to a read: a trainer reads once a step. Fill the kernel cache first, or compilation is part of the run.
"""

import argparse
import bisect
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLKIT = os.environ.get("CUDA_PATH", "/usr/local/cuda")
# CUPTI's number for copies from the device to the host.
DEVICE_TO_HOST = "2"
# Kernels below this share of GPU time get no line.
SMALLEST_SHARE = 0.005


def compile_library(folder, headers):
    roots = [f"{TOOLKIT}/extras/CUPTI", f"{TOOLKIT}/targets", TOOLKIT, sys.prefix, "/opt"]
    found = (glob.glob(f"{root}/**/libcupti.so*", recursive=True) for root in roots)
    library = next((paths[0] for paths in found if paths), None)
    if library is None:
        sys.exit(f"kernel_times.py: no libcupti.so in {TOOLKIT} or beside Python. Set CUDA_PATH to a CUDA toolkit.")
    # Headers of NVIDIA's wheels lie beside their libraries.
    beside = os.path.join(os.path.dirname(library), "..", "include")
    headers = headers or [f"{TOOLKIT}/extras/CUPTI/include", f"{TOOLKIT}/include", beside]
    output = os.path.join(folder, "kernel_times.so")
    command = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-o", output, os.path.join(HERE, "kernel_times.c"), library]
    subprocess.run(command + [f"-I{path}" for path in headers] + [f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)
    return output


def read_records(path):
    """Kind, start and end in ns, and the other columns of each record, in order of the start."""
    records = []
    with open(path, errors="replace") as lines:
        for line in lines:
            columns = line.rstrip("\n").split("\t")
            # The last line of a program that was killed may be short.
            if len(columns) >= 6:
                kind, start, end, *rest = columns
                records.append((kind, int(start), int(end), rest))
    records.sort(key=lambda record: record[1])
    return records


def last_steps(records, seconds):
    """The records between the reads in the last seconds, the time between, and the number of steps."""
    reads = [end for kind, _, end, rest in records if kind == "c" and rest[3] == DEVICE_TO_HOST]
    reads = reads[bisect.bisect_left(reads, reads[-1] - seconds * 1e9) :] if reads else []
    if len(reads) < 2:
        sys.exit(f"kernel_times.py: fewer than two reads of the device in the last {seconds} s. Raise --seconds.")
    inside = [record for record in records if reads[0] < record[2] <= reads[-1]]
    return inside, (reads[-1] - reads[0]) / 1e9, len(reads) - 1


def group(name):
    """Kernels of one kind: the name without types, sizes and hash."""
    name = re.sub(r"_[0-9a-f]{8}$", "", name)
    return re.split(r"_kernel|_entry|_(?:[a-z]|in|lhs)_(?:f|bf|i|u)\d+", name)[0]


def summarise(label, records, seconds):
    records, seconds, steps = last_steps(records, seconds)
    busy = until = 0
    for kind, start, end, _ in records:
        if kind != "d":
            busy += max(0, end - max(start, until))
            until = max(until, end)
    kernels, groups, calls = (collections.defaultdict(lambda: [0, 0]) for _ in range(3))
    for kind, start, end, rest in records:
        for names, name in ((kernels, rest[2]), (groups, group(rest[2]))) if kind == "k" else ((calls, rest[2]),):
            if kind in "kd":
                names[name][0] += 1
                names[name][1] += end - start
    total = sum(time for _, time in kernels.values())

    def rows(names, smallest=0.0):
        ordered = sorted(names.items(), key=lambda item: -item[1][1])
        row = lambda count, time: {"launches": round(count / steps, 1), "ms": round(time / steps / 1e6, 3)}
        return [{"name": name, **row(*sums)} for name, sums in ordered if sums[1] >= smallest * total]

    print(json.dumps({
        "label": label, "steps": steps, "ms": round(seconds / steps * 1e3, 2), "busy": round(busy / seconds / 1e9, 3),
        "launches": round(sum(count for count, _ in kernels.values()) / steps),
        "driver_ms": round(sum(time for _, time in calls.values()) / steps / 1e6, 2),
        "groups": rows(groups, SMALLEST_SHARE), "driver": rows(calls)[:5],
    }))
    for row in rows(kernels, SMALLEST_SHARE):
        print(json.dumps({"label": label, "kernel": row.pop("name"), **row}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", required=True, help="name of the run in each line")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of the part that counts (default: 1)")
    parser.add_argument("--include", action="append", help="folder with cupti.h or cuda.h")
    parser.add_argument("--records", help="summarise this file of an earlier run instead of a program")
    parser.add_argument("program", nargs="*")
    arguments = parser.parse_args()
    if arguments.records:
        return summarise(arguments.label, read_records(arguments.records), arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "launches")
        library = compile_library(folder, arguments.include)
        environment = dict(os.environ, CUDA_INJECTION64_PATH=library, LAUNCHES=path)
        # The program's own lines go to standard error.
        subprocess.run(arguments.program, env=environment, stdout=sys.stderr, check=True)
        summarise(arguments.label, read_records(path), arguments.seconds)


if __name__ == "__main__":
    main()
