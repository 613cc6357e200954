#!/bin/sh
# Engine and trainer on the shipped model: 32 held-out passages of 512 tokens, layer-forced and
# running freely (src/train/parity.h). About four minutes of one core. Status 1 below the bar.
#   parity.sh [--passages N --tokens N --threads N --json ...]
set -eu
cd "$(dirname "$0")/../.."
[ -x build/train/fathom-train ] || ./fathom setup --train
exec build/train/fathom-train parity --model models/fathom-34m --text models/heldout "$@"
