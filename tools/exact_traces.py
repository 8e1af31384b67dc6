"""Records the trace of the 12 × Linear(1024) Adam program, whose memory on a GPU was published, for tests without torch.

python -m tools.exact_traces     write fixtures/exact/twelve_linears.json.gz anew (needs torch)
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hubaudit.exact.device import device_of_capability
from hubaudit.exact.emulation import as_on_cuda
from hubaudit.exact.events import to_rows
from hubaudit.exact.tracer import Tracer

if TYPE_CHECKING:
    from hubaudit.exact.events import Trace

FIXTURE = Path(__file__).parent.parent / "fixtures" / "exact" / "twelve_linears.json.gz"
_WIDTH, _LAYERS, _BATCH = 1024, 12, 32


class _Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)])

    def forward(self, x: Any) -> tuple[Any, list[Any]]:
        activations = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            activations.append(x)
        return x, activations


def twelve_linears(capability: str, **adam: Any) -> Trace:
    """The program: a model and a batch on the device, a forward pass that keeps its activations, MSE, backward, one step of Adam."""
    device = device_of_capability(capability)
    tracer = Tracer("meta", device)
    with as_on_cuda(device), tracer:
        with torch.device("cpu"):
            model = _Model()
        model = model.to("meta")
        inputs, target = (torch.randn(_BATCH, _WIDTH, device="meta") for _ in range(2))
        optimizer = torch.optim.Adam(model.parameters(), **adam)
        tracer.empty_cache()
        tracer.mark("initial")
        output, activations = model(inputs)
        tracer.mark("forward")
        loss = nn.MSELoss()(output, target)
        tracer.mark("loss")
        loss.backward()
        tracer.mark("backward")
        optimizer.step()
        tracer.mark("step")
        del activations
    return tracer.trace()


def main() -> None:
    """Write the fixture."""
    traces = {"loop": twelve_linears("7.0", foreach=False), "foreach": twelve_linears("8.0")}
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(FIXTURE, "wb", mtime=0) as stream:
        document = {name: to_rows(trace) for name, trace in traces.items()}
        stream.write(json.dumps(document, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
