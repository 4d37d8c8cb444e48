#!/usr/bin/env bash
# Sets up the students' repository with the CPU build of torch: Gradescope has no GPU.
set -euo pipefail
cd /autograder/source/release
command -v curl >/dev/null || { apt-get update -qq && apt-get install -y -qq curl ca-certificates; }
command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | env UV_INSTALL_DIR=/usr/local/bin sh
command -v gcc >/dev/null || { apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
torch=$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
uv venv --python "$(cat .python-version)"
uv pip install "$torch" --index-url https://download.pytorch.org/whl/cpu
uv pip install -r pyproject.toml
.venv/bin/python -m grader doctor || true
