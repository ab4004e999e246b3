#!/usr/bin/env python3
"""Writes moe_layer.json and moe_layer.f32 beside itself: one small layer of experts in several variations, computed in
float64 with numpy. Every expert is computed for every row, and a matrix of weights says who counts.

    make_moe_layer.py            needs numpy
"""
import json
import math
import pathlib

import numpy as np

WIDTH, HIDDEN, SHARED, EXPERTS, ROWS = 16, 12, 10, 6, 5
EPSILON = 1e-5

# What is not said is off: no norm of the weights, no bias, no shared expert.
CASES = [
    {"name": "softmax, renormalised", "used": 2, "gating": "softmax", "normalise": True, "activation": "silu",
     "gated": True},
    {"name": "softmax as it is, with a shared expert", "used": 3, "gating": "softmax", "normalise": False,
     "activation": "silu", "gated": True, "shared": True, "end_scale": 0.25},
    {"name": "clamped, with every bias", "used": 4, "gating": "softmax", "normalise": True,
     "activation": "swiglu_clamped", "clamp": 0.75, "alpha": 1.702, "gated": True, "biases": True},
    {"name": "sigmoid, chosen with a bias, without gates", "used": 3, "gating": "sigmoid", "normalise": True,
     "weight_scale": 2.5, "selection_bias": True, "activation": "relu_squared", "gated": False, "shared": True},
    {"name": "one expert by its sigmoid", "used": 1, "gating": "sigmoid", "normalise": False, "activation": "gelu_tanh",
     "gated": True},
]


def activate(kind, z):
    if kind == "silu":
        return z / (1 + np.exp(-z))
    if kind == "gelu_tanh":
        return z * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return np.where(z > 0, z, 0.0)**2


def inner(case, gate, up):
    if case["activation"] == "swiglu_clamped":
        gate = np.minimum(gate, case["clamp"])
        up = np.clip(up, -case["clamp"], case["clamp"])
        return gate / (1 + np.exp(-case["alpha"] * gate)) * (up + 1)
    return activate(case["activation"], gate) * up if case["gated"] else activate(case["activation"], up)


def routing(case, data, h):
    """[rows][experts]: the weight of each expert, zero for those that were not chosen."""
    logits = h @ data["router"].T + (data["router_bias"] if case.get("biases") else 0)
    every = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = every if case["gating"] == "softmax" else 1 / (1 + np.exp(-logits))
    preference = scores + (data["selection_bias"] if case.get("selection_bias") else 0)
    place = np.argsort(np.argsort(-preference, axis=1, kind="stable"), axis=1, kind="stable")
    weights = np.where(place < case["used"], scores, 0.0)
    if case["normalise"]:
        weights /= weights.sum(axis=1, keepdims=True)
    return weights * case.get("weight_scale", 1.0)


def layer(case, data):
    x = data["x"]
    h = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON) * data["before"]
    bias = (lambda name: data[name]) if case.get("biases") else (lambda name: 0)
    gate = np.einsum("ehw,rw->reh", data["gate"], h) + bias("gate_bias")
    up = np.einsum("ehw,rw->reh", data["up"], h) + bias("up_bias")
    down = np.einsum("ewh,reh->rew", data["down"], inner(case, gate, up)) + bias("down_bias")
    value = np.einsum("re,rew->rw", routing(case, data, h), down)
    if case.get("shared"):
        value += inner(case, h @ data["shared_gate"].T, h @ data["shared_up"].T) @ data["shared_down"].T
    return x + case.get("end_scale", 1.0) * value


def main():
    random = np.random.default_rng(7)
    shapes = {"x": (ROWS, WIDTH), "before": (WIDTH,), "router": (EXPERTS, WIDTH), "router_bias": (EXPERTS,),
              "selection_bias": (EXPERTS,), "gate": (EXPERTS, HIDDEN, WIDTH), "up": (EXPERTS, HIDDEN, WIDTH),
              "down": (EXPERTS, WIDTH, HIDDEN), "gate_bias": (EXPERTS, HIDDEN), "up_bias": (EXPERTS, HIDDEN),
              "down_bias": (EXPERTS, WIDTH), "shared_gate": (SHARED, WIDTH), "shared_up": (SHARED, WIDTH),
              "shared_down": (WIDTH, SHARED)}
    # The values are those of float32, the arithmetic is float64.
    data = {name: random.normal(0, 0.5, shape).astype(np.float32).astype(np.float64) for name, shape in shapes.items()}
    arrays, offset, values = {}, 0, []

    def put(name, array):
        nonlocal offset
        arrays[name] = [offset, array.size]
        values.append(array.astype("<f4").ravel())
        offset += array.size

    for name, array in data.items():
        put(name, array)
    for index, case in enumerate(CASES):
        put(f"expected {index}", layer(case, data))
    folder = pathlib.Path(__file__).resolve().parent
    sizes = {"width": WIDTH, "hidden": HIDDEN, "shared": SHARED, "experts": EXPERTS, "rows": ROWS, "epsilon": EPSILON}
    text = json.dumps({"sizes": sizes, "arrays": arrays, "cases": CASES}, indent=1)
    (folder / "moe_layer.json").write_text(text + "\n")
    (folder / "moe_layer.f32").write_bytes(np.concatenate(values).tobytes())


if __name__ == "__main__":
    main()
