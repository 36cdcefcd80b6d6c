"""The models of this folder in Python: for benchmarks, and as the oracle of the C++ models.

Parameter names, and the order of operations, are the same as in C++, so that gradients are bit-identical.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def attend(parts, heads, causal):
    batch, length, width = parts[0].shape
    query, key, value = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    return mixed.transpose(1, 2).reshape(batch, length, width)


class EncoderLayer(nn.TransformerEncoderLayer):
    """PyTorch's own, with attention in (batch, length) order: the same results without its transposed copies."""

    def forward(self, x, src_mask=None, src_key_padding_mask=None, is_causal=False):
        own = self.self_attn
        mixed = attend(F.linear(x, own.in_proj_weight, own.in_proj_bias).chunk(3, 2), own.num_heads, False)
        x = self.norm1(x + own.out_proj(mixed))
        return self.norm2(x + self.linear2(F.gelu(self.linear1(x))))


class BenchmarkTransformer(nn.Module):
    def __init__(self, vocabulary=50257, positions=512, width=512, heads=8, hidden=2048, layers=6, layer=EncoderLayer):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        one = layer(width, heads, hidden, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(one, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.encoder(x))


class GptAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        return self.c_proj(attend(self.c_attn(x).chunk(3, 2), self.heads, True))


class GptMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), GptAttention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), GptMlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, tied=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        return F.linear(x, self.wte.weight) if self.lm_head is None else self.lm_head(x)


class ResNetBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        changed = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(changed + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, channels=3, classes=10, width=64):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inputs = width
        for i in range(4):
            outputs = width << i
            blocks = nn.Sequential(ResNetBlock(inputs, outputs, 2 if i else 1), ResNetBlock(outputs, outputs, 1))
            setattr(self, f"layer{i + 1}", blocks)
            inputs = outputs
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


def fill(model):
    """Weights that are bit-identical in C++: sines of the element's number, as in made_up_numbers.h."""
    with torch.no_grad():
        for number, (name, weight) in enumerate(model.named_parameters()):
            waves = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 0.7 + number).view_as(weight)
            if weight.dim() > 1:
                weight.copy_(waves / (weight.numel() / weight.shape[0]) ** 0.5)
            else:
                weight.copy_(waves * 0.1 + (0.0 if name.endswith("bias") else 1.0))


def made_up_tokens(batch, length, vocabulary, step=0):
    return ((torch.arange(batch * length) + 1000 * step) * 7919 % 10007 % vocabulary).view(batch, length)


def made_up_numbers(shape, step=0):
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.9 + step).float().view(shape)


def made_up_classes(batch, classes, step=0):
    return (torch.arange(batch) * 3 + step) % classes
