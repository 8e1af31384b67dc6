"""Storages of CPU tensors, watched while torch runs, against sizes that follow from their shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")


def test_a_tensor_lives_from_its_birth_to_its_death() -> None:
    """Views add nothing, a death gives everything back, and the peak holds both tensors that lived at once."""
    from hubaudit.monitor import MemoryMonitor

    with MemoryMonitor("cpu") as monitor:
        first = torch.ones(1000, dtype=torch.float32)
        view = first[10:].view(-1)
        monitor.snapshot("one")
        second = first + 1
        del first, view, second
        monitor.snapshot("none")
    assert [one.allocated_bytes for one in monitor.snapshots] == [0, 4000, 0, 0]
    assert monitor.snapshots[2].peak_allocated_bytes == 8000


def test_a_training_loop_and_its_leak(tmp_path: Path) -> None:
    """AdamW on fp32: weights, twice as much for its states and 4 bytes a step counter; kept losses leak 4 bytes a step."""
    from hubaudit.monitor import MemoryMonitor

    kept = []
    with MemoryMonitor("cpu") as monitor:
        model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
        monitor.hold(model.parameters(), "weights")
        monitor.snapshot("load")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(4):
            loss = model(torch.ones(8, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(loss.detach())
            del loss
            monitor.snapshot("step")
    weights = 4 * (64 * 64 + 64) * 4
    assert monitor.difference("start", "load") == weights
    assert monitor.difference("load", "step") == 2 * weights + 8 * 4 + 4 * 4
    (leak,) = monitor.leaks()
    assert (leak.label, leak.bytes_each_time) == ("step", 4)
    monitor.plot(tmp_path / "steps.html")
    assert "weights" in (tmp_path / "steps.html").read_text(encoding="utf-8")


class _Picks(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """A program's own backward pass, which goes on using what it added to and what it filled."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index)
        return x[index]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (index,) = ctx.saved_tensors
        base = torch.zeros(16)
        picked = base.index_add(0, index, gradients[0])
        twice = picked * 2
        return picked + twice + (twice + base) + base + twice, None


def test_watching_changes_no_result() -> None:
    """Gradients are the same watched and not, though the watcher adds and fills in place where autograd would."""
    from hubaudit.monitor import MemoryMonitor

    index = torch.tensor([1, 2, 3, 3])
    seen: list[torch.Tensor] = []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        changed = gradient + torch.ones(16)
        seen.append(gradient)
        return changed

    def gradient() -> tuple[torch.Tensor, ...]:
        x = torch.arange(16.0, requires_grad=True)
        y = x * 2
        y.register_hook(hook)
        z = _Picks.apply(y, index)
        out = torch.relu(y) + torch.tanh(y) + y.square() + y.sort().values
        (out.sum() + z.sum() + y[index].sum() + y.gather(0, index).sum() + y.index_select(0, index).sum()).backward()
        assert x.grad is not None
        return x.grad, seen.pop()

    plain = gradient()
    with MemoryMonitor("cpu"):
        watched = gradient()
    for one, other in zip(plain, watched, strict=True):
        assert torch.equal(one, other)
