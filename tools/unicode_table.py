#!/usr/bin/env python3
"""Writes src/text/unicode_classes.inc from tests/golden/tokenizer/unicode_classes.json.

Usage, in the root of the tree: tools/unicode_table.py > src/text/unicode_classes.inc
"""
import json

NAMES = {"L": "kLetterRanges", "M": "kMarkRanges", "N": "kNumberRanges",
         "P": "kPunctuationRanges", "S": "kSymbolRanges", "space": "kSpaceRanges"}

classes = json.load(open("tests/golden/tokenizer/unicode_classes.json"))
print("// Unicode 16 general categories as inclusive ranges, ascending and disjoint.")
print("// Written by tools/unicode_table.py; do not edit.")
for key, name in NAMES.items():
    print(f"\nconstexpr CodePointRange {name}[] = {{")
    line = "   "
    for first, last in classes[key]:
        item = f" {{0x{int(first, 16):X}, 0x{int(last, 16):X}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
