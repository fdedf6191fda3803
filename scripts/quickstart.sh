#!/usr/bin/env bash
# Pretrain a small RoBERTa on Wikipedia's lead sections with separate corruption and prediction rates, then fill masks.
# Builds its own environment, skips finished steps, and resumes an interrupted training.
#
#   bash scripts/quickstart.sh [OUTPUT_DIR]        (default: quickstart-run)
#   bash scripts/quickstart.sh OUTPUT_DIR --text my.txt --updates 10000 --vocab-size 8000
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=""
for version in 3.11 3.12 3.13 3.10; do
    python=$(find_python $version) && break
done
[ -n "$python" ] || { echo "no Python 3.10 to 3.13 found" >&2; exit 1; }
say "[1/6] environment"
make_env "$ROOT/.venv/quickstart-$version" "$python" sentencepiece
exec "$ROOT/.venv/quickstart-$version/bin/python" "$ROOT/scripts/quickstart.py" "$@"
