#!/usr/bin/env python3
"""Puts kernels of CubeCL's caches into one new cache: kernels.py TO FROM... [--ptxas PTXAS]

What was tuned, and how fast the device is, stays behind: only kernels are the same on another machine. With --ptxas they are
compiled to machine code, on all processors at once; a driver compiles one after the other as they are loaded. It has to be the
ptxas of the driver's own release: CUDA 13.0 for a driver 580.

A cache is the file `cubecl/default.db` in the folder of caches. Kernels belong to one build of a program. Wherever one is put,
there may be no `-wal` and no `-tshm` beside it: with those of another file nothing of it is read and nothing kept, without a word.
"""

import argparse
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

# A cached kernel in CBOR: its text is a list of small integers, a byte for those below 24 and two for all others in ASCII. Between
# these keys, neither of which can be in such a list.
FIELD, NEXT = b"\x63ptx", b"\x62io"
HEADS = {0x98: 2, 0x99: 3, 0x9A: 5}
LETTER = re.compile(rb"\x18(.)|([\x00-\x17])", re.DOTALL)
# Bytes are signed there.
ENCODED = [bytes([n]) if n < 24 else bytes([0x18, n]) for n in range(128)] + [
    bytes([0x20 | n]) if n < 24 else bytes([0x38, n]) for n in range(127, -1, -1)
]


def compiled(ptxas, entry):
    """The cached kernel with machine code in the place of its text, or as it is if it cannot be compiled."""
    begin = entry.index(FIELD) + len(FIELD)
    end = entry.index(NEXT, begin)
    text = LETTER.sub(rb"\1\2", entry[begin + HEADS[entry[begin]] : end]).rstrip(b"\0")
    target = next((line.split()[1].decode() for line in text.splitlines() if line.startswith(b".target")), None)
    if target is None:
        return entry
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(text)
        made = subprocess.run([ptxas, f"-arch={target.rstrip(',')}", "-o", output, source], capture_output=True, check=False)
        if made.returncode != 0:
            print(f"left as it is: {made.stderr.decode().strip()}", file=sys.stderr)
            return entry
        code = output.read_bytes()
    return entry[:begin] + b"\x9a" + len(code).to_bytes(4, "big") + b"".join(map(ENCODED.__getitem__, code)) + entry[end:]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("to")
    arguments.add_argument("caches", nargs="+")
    arguments.add_argument("--ptxas", help="the compiler to machine code, of a CUDA toolkit")
    asked = arguments.parse_args()
    for cache in asked.caches:
        if not os.path.isfile(cache):
            arguments.error(f"{cache} is not there: name the file cubecl/default.db of a folder of caches")
    if asked.ptxas and shutil.which(asked.ptxas) is None:
        arguments.error(f"{asked.ptxas} cannot be run: it is in the folder bin of a CUDA toolkit")
    kernels, others, schema = {}, [], []
    for cache in asked.caches:
        with tempfile.TemporaryDirectory() as folder:
            # Looked at in a copy, as looking writes.
            for end in ("", "-wal"):
                if os.path.exists(cache + end):
                    Path(folder, "cache" + end).write_bytes(Path(cache + end).read_bytes())
            found = sqlite3.connect(Path(folder, "cache"))
            try:
                schema = [sql for (sql,) in found.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
                others = found.execute("SELECT * FROM meta").fetchall()
                rows = found.execute("SELECT namespace, key, value, origin FROM entries WHERE namespace LIKE 'cuda/%'")
                kernels |= {(row[0], row[1]): row for row in rows}
            except sqlite3.DatabaseError as error:
                arguments.error(f"{cache} is no cache of CubeCL's: {error}")
            found.close()
    rows = list(kernels.values())
    if asked.ptxas:
        with ProcessPoolExecutor() as pool:
            values = list(pool.map(partial(compiled, asked.ptxas), [row[2] for row in rows]))
        rows = [(row[0], row[1], value, row[3]) for row, value in zip(rows, values)]
    draft = asked.to + ".draft"
    Path(draft).unlink(missing_ok=True)
    made = sqlite3.connect(draft)
    for sql in schema:
        made.execute(sql)
    made.executemany("INSERT INTO meta VALUES (?, ?)", others)
    made.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
    made.commit()
    made.close()
    for end in ("-wal", "-tshm"):
        Path(asked.to + end).unlink(missing_ok=True)
    os.replace(draft, asked.to)
    print(f"{len(rows)} kernels", file=sys.stderr)


if __name__ == "__main__":
    main()
