"""The library beside dense_decode: cuBLASLt FP8 through PyTorch, shapes and rules of decode_bench.

Per-tensor scales and no A8 blocks, so it does less. CSV: op,shape,rows,us,TB/s,floor us,floor / us.
"""

import torch

BANDWIDTH = 4.3e12
SHAPES = [
    (1792, 5120), (32768, 1280), (5120, 8192), (4608, 5120),
    (5120, 2304), (4096, 1280), (25600, 6144),
]


def graph_time(calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(26):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / len(calls))
    return sorted(times[5:])[10]


def main():
    one = torch.ones((), device="cuda")
    for n, k in SHAPES:
        copies = max(4, int(4e8 / (n * k)) + 1)
        weights = [
            (torch.randn(n, k, device="cuda") * 60).to(torch.float8_e4m3fn) for _ in range(copies)
        ]
        for m in (1, 8, 16, 32, 64, 128):
            x = (torch.randn(m, k, device="cuda") * 60).to(torch.float8_e4m3fn)

            def call(w):
                return torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16)

            us = graph_time([lambda w=w: call(w) for w in weights * 2])
            total = n * k + m * (k + 2 * n)
            floor = total / BANDWIDTH * 1e6
            rate = total / us * 1e-6
            print(f"cublaslt_fp8,{n}x{k},{m},{us:.2f},{rate:.3f},{floor:.2f},{floor / us:.3f}")


main()
