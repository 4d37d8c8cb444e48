#!/usr/bin/env bash
# Nothing to set up but Python, which Gradescope's images have.
set -euo pipefail
command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq python3; }
