#!/bin/sh
# Builds the default and the test kernels for this machine's GPU, tests them on it, and prints the speed table.
#   PYTHON=python3 tests/gpu/run.sh [OUT]     results are written to the folder OUT (default: generated/gpu)
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
out=${1:-generated/gpu}
mkdir -p "$out"
arch=$("$python" -c 'import torch; print("%d.%d" % torch.cuda.get_device_capability())')
"$python" -m marlin_gen build --configs default --configs gpu-test --arch "$arch" --verify none
failed=0
"$python" -m pytest tests/gpu -q -rs > "$out/tests.txt" 2>&1 || failed=1
tail -n 25 "$out/tests.txt"
"$python" -m marlin_gen.bench --json "$out/speed.json"
exit $failed
