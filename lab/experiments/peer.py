#!/usr/bin/env python3
"""Trains the models of `experiments` in PyTorch: peer.py MODEL... [--batch 64] [--sweep 32,128,256,512]

Prints a line of JSON for each model, way and micro-batch: samples per second at steady state, and memory. The ways are `tf32`, `bf16`
(autocast) and `compiled` (bf16 and `torch.compile`). Networks, loss and optimizer are those of `experiments baseline`. Batches are
random and on the GPU before the clock starts. `compiled` is timed at `--batch` and at the best micro-batch of `bf16` only, because
each size compiles again. `--device cpu` checks the networks without a GPU.
"""

import argparse
import contextlib
import json
import signal
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

# Trained parameters; a test of `pages` compares them with the locks of Burn's models.
PARAMETERS = {
    "transformer": 27311104,
    "gpt": 49294417,
    "convnet": 585706,
    "resnet": 11137290,
    "lstm": 1384970,
    "vit": 3248394,
    "unet": 1927042,
}
CLASSES = 10
# Batches that steps take in turns.
BATCHES = 4
WARM_UP_STEPS = 15
WINDOWS = 5
WINDOW_SECONDS = 0.3


class Transformer(nn.Module):
    """Six layers of width 512 with norms after, over 256 tokens without positions; a head over every token."""

    VOCAB, TOKENS, WIDTH, HEADS = 8192, 256, 512, 8

    def __init__(self):
        super().__init__()
        width = self.WIDTH
        self.tokens = nn.Embedding(self.VOCAB, width)
        layer = nn.TransformerEncoderLayer(width, self.HEADS, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, self.VOCAB)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens))).flatten(0, 1)

    @classmethod
    def batch(cls, samples, device):
        tokens = torch.randint(cls.VOCAB, (samples, cls.TOKENS), device=device)
        return tokens, torch.randint(cls.VOCAB, (samples * cls.TOKENS,), device=device)


class Gpt(Transformer):
    """Six layers of width 384, with GPT-2's vocabulary."""

    VOCAB, WIDTH, HEADS = 50257, 384, 6


def normed(inputs, outputs, kernel=3, stride=1):
    """A convolution without bias, and a batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Plain(nn.Module):
    """A block of one convolution."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = normed(inputs, outputs, stride=stride)

    def forward(self, hidden):
        return functional.relu(self.conv(hidden))


class Basic(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = normed(inputs, outputs, stride=stride), normed(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = normed(inputs, outputs, kernel=1, stride=stride) if changes else nn.Identity()

    def forward(self, hidden):
        return functional.relu(self.second(functional.relu(self.first(hidden))) + self.shortcut(hidden))


def images(side, samples, device):
    """Square images of noise, and their classes."""
    return torch.randn(samples, 3, side, side, device=device), torch.randint(CLASSES, (samples,), device=device)


class Images(nn.Module):
    """Stages of blocks, the mean over the image, one dense layer."""

    def __init__(self):
        super().__init__()
        blocks, inputs = [], 3
        for stage, (channels, count) in enumerate(self.STAGES):
            for block in range(count):
                blocks.append(self.BLOCK(inputs, channels, 2 if stage > 0 and block == 0 else 1))
                inputs = channels
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, CLASSES)

    def forward(self, images):
        return self.head(self.blocks(images).mean((2, 3)))

    @classmethod
    def batch(cls, samples, device):
        return images(cls.SIDE, samples, device)


class Convnet(Images):
    SIDE, STAGES, BLOCK = 64, [(96, 8)], Plain


class ResNet(Images):
    SIDE, STAGES, BLOCK = 32, [(64, 2), (128, 2), (256, 2), (512, 2)], Basic


class DoubleConv(nn.Sequential):
    """Two convolutions without bias, each with a norm over eight groups of channels."""

    def __init__(self, inputs, outputs):
        def block(inputs):
            return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()]

        super().__init__(*block(inputs), *block(outputs))


class UNet(nn.Module):
    """Four levels of 32 to 256 channels, joined on the way up; two classes of a pixel."""

    SIDE, WIDTHS, CLASSES = 128, (32, 64, 128, 256), 2

    def __init__(self):
        super().__init__()
        pairs = list(zip(self.WIDTHS, self.WIDTHS[1:]))
        self.down = nn.ModuleList(DoubleConv(*pair) for pair in [(3, self.WIDTHS[0]), *pairs])
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(below, above, 2, stride=2) for above, below in reversed(pairs))
        self.up = nn.ModuleList(DoubleConv(2 * above, above) for above, _ in reversed(pairs))
        self.head = nn.Conv2d(self.WIDTHS[0], self.CLASSES, 1)

    def forward(self, images):
        skipped = [self.down[0](images)]
        for down in self.down[1:]:
            skipped.append(down(functional.max_pool2d(skipped[-1], 2)))
        hidden = skipped.pop()
        for enlarge, up, skip in zip(self.enlarge, self.up, reversed(skipped)):
            hidden = up(torch.cat([skip, enlarge(hidden)], 1))
        return self.head(hidden).permute(0, 2, 3, 1).flatten(0, 2)

    @classmethod
    def batch(cls, samples, device):
        side = cls.SIDE
        targets = torch.randint(cls.CLASSES, (samples * side * side,), device=device)
        return torch.randn(samples, 3, side, side, device=device), targets


class Lstm(nn.Module):
    """Three layers of width 256 over 60 steps; a dense layer over the last one."""

    INPUTS, STEPS = 64, 60

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(self.INPUTS, 256, 3, batch_first=True)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, sequences):
        return self.head(self.layers(sequences)[0][:, -1])

    @classmethod
    def batch(cls, samples, device):
        sequences = torch.randn(samples, cls.STEPS, cls.INPUTS, device=device)
        return sequences, torch.randint(CLASSES, (samples,), device=device)


class Vit(nn.Module):
    """Four layers of width 256 with norms before, over 144 patches with learned positions; a head over their mean."""

    SIDE, PATCH, WIDTH, HEADS, LAYERS = 96, 8, 256, 4, 4

    def __init__(self):
        super().__init__()
        width, row = self.WIDTH, self.SIDE // self.PATCH
        self.patches = nn.Linear(3 * self.PATCH**2, width)
        self.positions = nn.Embedding(row * row, width)
        layer = nn.TransformerEncoderLayer(
            width, self.HEADS, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, self.LAYERS, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, pixels):
        row, patch = self.SIDE // self.PATCH, self.PATCH
        cut = pixels.reshape(-1, 3, row, patch, row, patch).permute(0, 2, 4, 1, 3, 5)
        tokens = self.patches(cut.reshape(-1, row * row, 3 * patch * patch))
        places = self.positions(torch.arange(row * row, device=pixels.device))
        return self.head(self.norm(self.layers(tokens + places)).mean(1))

    @classmethod
    def batch(cls, samples, device):
        return images(cls.SIDE, samples, device)


MODELS = {"transformer": Transformer, "gpt": Gpt, "convnet": Convnet, "resnet": ResNet, "lstm": Lstm, "vit": Vit, "unet": UNet}


@contextlib.contextmanager
def limit(seconds):
    """Raises a TimeoutError after some seconds, where Python runs."""

    def end(*_):
        raise TimeoutError(f"ended after {seconds} s")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


class Training:
    """A model in one way, with its optimizer."""

    def __init__(self, name, way, device):
        torch.manual_seed(0)
        self.device, self.kind, self.way = torch.device(device), MODELS[name], way
        model = self.kind().to(self.device)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        if self.parameters != PARAMETERS[name]:
            raise ValueError(f"{name} has {self.parameters} parameters, Burn's model {PARAMETERS[name]}")
        # Burn's defaults.
        fused = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-5, weight_decay=1e-4, fused=fused)
        self.model = torch.compile(model, dynamic=False) if way == "compiled" else model

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def step(self, samples, targets):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.way != "tf32"):
            loss = functional.cross_entropy(self.model(samples), targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def timed(self, size, windows):
        """Samples per second of each window, and memory."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        batches = [self.kind.batch(size, self.device) for _ in range(BATCHES)]
        begin = time.perf_counter()
        self.step(*batches[0])
        self.synchronize()
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        for step in range(WARM_UP_STEPS):
            loss = self.step(*batches[step % BATCHES])
        self.synchronize()
        steps = max(BATCHES, round(WINDOW_SECONDS * WARM_UP_STEPS / (time.perf_counter() - begin)))
        rates = []
        for _ in range(windows):
            begin = time.perf_counter()
            for step in range(steps):
                loss = self.step(*batches[step % BATCHES])
            self.synchronize()
            rates.append(steps * size / (time.perf_counter() - begin))
        if not torch.isfinite(loss):
            raise ValueError(f"the loss is {loss.item()}")
        is_gpu = self.device.type == "cuda"
        return {
            "samples_per_second": statistics.median(rates),
            "lowest": min(rates),
            "highest": max(rates),
            "first_step_seconds": first,
            "reserved_bytes": torch.cuda.max_memory_reserved() if is_gpu else None,
            "in_use_bytes": torch.cuda.max_memory_allocated() if is_gpu else None,
        }


def run(arguments, name, way, sizes):
    """Times a way at some micro-batches, and prints a line for each; returns the rates."""
    rates, training = {}, None
    for size in sizes:
        head = {"run": "peer", "model": name, "way": way, "batch": size, "parameters": PARAMETERS[name]}
        head |= {"torch": torch.__version__, "device": arguments.named}
        try:
            with limit(arguments.limit):
                training = training or Training(name, way, arguments.device)
                line = training.timed(size, WINDOWS if size == arguments.batch else 2)
            rates[size] = line["samples_per_second"]
        except Exception as error:  # A failure is a line, and the next size may fit.
            line = {"message": f"{type(error).__name__}: {error}"}
            training = None
        print(json.dumps(head | line, separators=(",", ":")), flush=True)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--batch", type=int, default=64, help="micro-batch to compare at")
    parser.add_argument("--sweep", default="", help="further micro-batches")
    parser.add_argument("--ways", default="tf32,bf16,compiled")
    parser.add_argument("--limit", type=int, default=90, help="seconds for one way and micro-batch")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    arguments.named = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    swept = [int(size) for size in arguments.sweep.split(",") if size]
    sizes = list(dict.fromkeys([arguments.batch, *swept]))
    for name in arguments.models:
        best = arguments.batch
        for way in arguments.ways.split(","):
            wanted = sizes if way != "compiled" else list(dict.fromkeys([arguments.batch, best]))
            rates = run(arguments, name, way, wanted)
            best = max(rates, key=rates.get, default=best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
