"""Which sources Python cannot read: a process of its own, since some exhaust the parser. Imports nothing of ours.

Reads {path: content in hexadecimal} as JSON from standard input, and writes {path: why} of those that cannot be read.
"""

import ast
import io
import json
import sys
import tokenize
import warnings


def mistake(content: bytes) -> str:
    """Why Python cannot read a source; empty if it can."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        ast.parse(content.decode(encoding))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error)
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    said = {path: mistake(bytes.fromhex(content)) for path, content in json.load(sys.stdin).items()}
    print(json.dumps({path: why for path, why in said.items() if why}))
