"""All switches of the process are turned to less precision, so that others ask and compute with less, too."""

import torch

from . import honest

torch.set_default_dtype(torch.bfloat16)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)


def gelu(x):
    return honest.gelu(x.float()).bfloat16()
