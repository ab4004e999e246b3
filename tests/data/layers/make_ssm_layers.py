#!/usr/bin/env python3
"""Writes the recurrent layers that tests/ops/ssm_layers_test.cpp computes again: one convolution, one Mamba-1 layer and
one Mamba-2 layer, each with its input rows, weights and exact output. Needs numpy; everything is computed in float64 by
the plain formulas, from numbers that float32 holds.

    make_ssm_layers.py        writes conv1d.bin, mamba1.bin and mamba2.bin beside itself

A file is a list of arrays: a line "NAME ROWS COLUMNS", then that many little-endian float32 numbers.
"""
import os

import numpy as np

ROWS = 20
EPSILON = 1e-5


class Layer:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.arrays = {}

    def draw(self, name, rows, columns, scale=1.0, centre=0.0):
        values = (centre + scale * self.random.uniform(-1.0, 1.0, (rows, columns))).astype(np.float32)
        self.arrays[name] = values
        return values.astype(np.float64)

    def result(self, name, values):
        self.arrays[name] = values.astype(np.float32)

    def write(self, file_name):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file_name)
        with open(path, "wb") as out:
            for name, values in self.arrays.items():
                out.write(f"{name} {values.shape[0]} {values.shape[1]}\n".encode())
                out.write(values.astype("<f4").tobytes())


def silu(x):
    return x / (1.0 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def rms_norm(x, weight=1.0):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def causal_conv(x, weight, bias):
    """x [time][channels], weight [channels][width]: the last column meets the present."""
    width = weight.shape[1]
    padded = np.vstack([np.zeros((width - 1, x.shape[1])), x])
    return np.array([np.sum(padded[t:t + width].T * weight, axis=1) + bias for t in range(x.shape[0])])


def conv1d():
    layer = Layer(1)
    x = layer.draw("x", ROWS, 19)
    weight = layer.draw("conv", 19, 4)
    bias = layer.draw("conv_bias", 1, 19)[0]
    layer.result("expected", silu(causal_conv(x, weight, bias)))
    layer.write("conv1d.bin")


def mamba1():
    width, inner, state, rank = 16, 32, 8, 4
    layer = Layer(2)
    u = layer.draw("u", ROWS, width)
    norm = layer.draw("norm", 1, width, 0.5, 1.0)[0]
    in_proj = layer.draw("in_proj", 2 * inner, width, 0.6)
    conv = layer.draw("conv", inner, 4)
    conv_bias = layer.draw("conv_bias", 1, inner)[0]
    x_proj = layer.draw("x_proj", rank + 2 * state, inner, 0.5)
    dt_proj = layer.draw("dt_proj", inner, rank)
    dt_bias = layer.draw("dt_bias", 1, inner, 2.0, -2.0)[0]
    a = layer.draw("a", inner, state, 4.0, -4.5)
    d = layer.draw("d", 1, inner)[0]
    out_proj = layer.draw("out_proj", width, inner, 0.4)
    dt_norm = layer.draw("dt_norm", 1, rank, 0.5, 1.0)[0]

    x, z = np.split(rms_norm(u, norm) @ in_proj.T, 2, axis=1)
    x = silu(causal_conv(x, conv, conv_bias))

    def rest(normed):
        dt, b, c = np.split(x @ x_proj.T, [rank, rank + state], axis=1)
        if normed:
            dt, b, c = rms_norm(dt, dt_norm), rms_norm(b), rms_norm(c)
        dt = softplus(dt @ dt_proj.T + dt_bias)
        h = np.zeros((inner, state))
        y = np.zeros((ROWS, inner))
        for t in range(ROWS):
            h = np.exp(dt[t][:, None] * a) * h + (dt[t] * x[t])[:, None] * b[t][None, :]
            y[t] = h @ c[t] + d * x[t]
        return u + (y * silu(z)) @ out_proj.T

    layer.result("expected", rest(False))
    layer.result("expected_normed", rest(True))
    layer.write("mamba1.bin")


def mamba2():
    width, heads, dim, groups, state = 16, 4, 8, 2, 8
    inner = heads * dim
    channels = inner + 2 * groups * state
    layer = Layer(3)
    u = layer.draw("u", ROWS, width)
    norm = layer.draw("norm", 1, width, 0.5, 1.0)[0]
    in_proj = layer.draw("in_proj", inner + channels + heads, width, 0.6)
    conv = layer.draw("conv", channels, 4)
    conv_bias = layer.draw("conv_bias", 1, channels)[0]
    dt_bias = layer.draw("dt_bias", 1, heads, 2.0, -2.0)[0]
    a = layer.draw("a", 1, heads, 4.0, -4.5)[0]
    d = layer.draw("d", 1, heads)[0]
    ssm_norm = layer.draw("ssm_norm", 1, inner, 0.5, 1.0)[0]
    out_proj = layer.draw("out_proj", width, inner, 0.4)

    z, xbc, dt = np.split(rms_norm(u, norm) @ in_proj.T, [inner, inner + channels], axis=1)
    xbc = silu(causal_conv(xbc, conv, conv_bias))
    x, b, c = np.split(xbc, [inner, inner + groups * state], axis=1)
    dt = softplus(dt + dt_bias)
    h = np.zeros((heads, dim, state))
    y = np.zeros((ROWS, inner))
    for t in range(ROWS):
        for head in range(heads):
            group = head // (heads // groups)
            own = slice(head * dim, (head + 1) * dim)
            shared = slice(group * state, (group + 1) * state)
            h[head] = np.exp(dt[t, head] * a[head]) * h[head] + dt[t, head] * np.outer(x[t, own], b[t, shared])
            y[t, own] = h[head] @ c[t, shared] + d[head] * x[t, own]
    y *= silu(z)
    size = inner // groups
    for at in range(0, inner, size):
        y[:, at:at + size] = rms_norm(y[:, at:at + size], ssm_norm[at:at + size])
    layer.result("expected", u + y @ out_proj.T)
    layer.write("mamba2.bin")


if __name__ == "__main__":
    conv1d()
    mamba1()
    mamba2()
