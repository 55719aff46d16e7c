import pytest
import torch


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """What runs beside the stand-in is on the CPU, also where there is a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
