"""Compiles the function `kernel` of every file of a folder for a Hopper GPU, and prints why it does not: {stem: error}.

A program of its own, for Triton writes what it has read into the error output, and tests run with the interpreter.
"""

import importlib
import json
import sys
from pathlib import Path

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SIGNATURE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}


def error(module: str) -> str:
    kernel = importlib.import_module(module).kernel
    try:
        compiled(ASTSource(kernel, SIGNATURE, {(3,): 128}), target=GPUTarget("cuda", 90, 32))
    except Exception as exception:  # Triton and MLIR have no class of errors in common
        return f"{type(exception).__name__}: {exception}"
    return ""


sys.path.insert(0, sys.argv[1])
print(json.dumps({path.stem: error(path.stem) for path in Path(sys.argv[1]).glob("*.py")}))
