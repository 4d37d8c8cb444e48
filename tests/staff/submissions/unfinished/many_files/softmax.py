import torch
import triton
import kernels
import my_utils


def softmax(x: torch.Tensor) -> torch.Tensor:
    my_utils.check_dtype("softmax", x)
    flat = x.reshape(-1, x.shape[-1])
    y = torch.empty_like(flat)
    kernels.softmax_kernel[(flat.shape[0],)](
        flat, y, flat.stride(0), flat.stride(1), y.stride(0), flat.shape[1],
        BLOCK=triton.next_power_of_2(flat.shape[1]),
    )
    return y.reshape(x.shape)


if __name__ == "__main__":
    t = torch.randn(37, 100)
    print((softmax(t) - torch.softmax(t, -1)).abs().max())
