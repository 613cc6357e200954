#!/usr/bin/env python3
"""Holds fathom's tokenizer against the Hugging Face `tokenizers` package: same ids, and speed.

Needs `pip install tokenizers==0.23.*` and the built target tokenizer_speed.
Usage: tokenizer_compare.py SPEED_PROGRAM TOKENIZER.json FILE...
Both encode each file, cut into documents of 16 KiB, on one thread; CPU time, best of five
alternating rounds.
Exit status 1 if ids differ or fathom is slower on any file.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer, __version__  # noqa: E402

ROUNDS = 5
DOCUMENT_BYTES = 16384


def documents_of(data):
    """As tokenizer_speed cuts: each ends at the first newline at or after DOCUMENT_BYTES."""
    documents = []
    while data:
        newline = data.find(b"\n", DOCUMENT_BYTES)
        end = len(data) if newline < 0 else newline + 1
        documents.append(data[:end].decode())
        data = data[end:]
    return documents


def fathom_row(program, tokenizer, path):
    lines = subprocess.run([program, tokenizer, "1", path], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return json.loads(lines[1])


def main(program, tokenizer, *paths):
    peer = Tokenizer.from_file(tokenizer)
    ok = True
    for path in paths:
        documents = documents_of(open(path, "rb").read())
        peer_s = fathom_s = float("inf")
        for _ in range(ROUNDS):
            row = fathom_row(program, tokenizer, path)
            fathom_s = min(fathom_s, row["seconds"])
            start = time.thread_time()
            encoded = [peer.encode(d, add_special_tokens=False) for d in documents]
            peer_s = min(peer_s, time.thread_time() - start)
        ids = [i for encoding in encoded for i in encoding.ids]
        digest = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
        same = digest == row["sha256"]
        ok = ok and same and fathom_s <= peer_s
        print(json.dumps({
            "file": os.path.basename(path), "bytes": row["bytes"], "ids": len(ids),
            "same_ids": same, "tokenizers": __version__,
            "fathom_mb_per_s": round(row["bytes"] / fathom_s / 1e6, 2),
            "tokenizers_mb_per_s": round(row["bytes"] / peer_s / 1e6, 2),
            "ratio": round(peer_s / fathom_s, 2)}))
    return 0 if ok else 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
