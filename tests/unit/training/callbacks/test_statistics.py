"""Running statistics of batch-norm follow the weights after each epoch."""

import torch
from torch import nn

import tllib_ancon
from tests.support.falls import LOADED, striped_source_model, stripes
from tests.support.small import adapt
from tllib_ancon.training.callbacks.statistics import RenewedStatistics


def test_the_moving_average_stays_where_it_does_not_lag(monkeypatch):
    settings = {"epochs": 1, "seed": 0, "threads": 1, **LOADED}
    target = stripes(96, 1.0, 1)
    renewed = tllib_ancon.adapt(striped_source_model(), target, **settings).model.state_dict()
    monkeypatch.setattr(RenewedStatistics, "after_epoch", lambda *arguments: None)
    moving = tllib_ancon.adapt(striped_source_model(), target, **settings).model.state_dict()
    for name, tensor in moving.items():
        assert torch.equal(tensor, renewed[name])


def test_estimated_statistics_are_those_of_training_images(monkeypatch):
    """Of augmented ones, by which networks learn to predict."""

    def estimate(statistics, trainer):
        if trainer.epoch > 0:
            statistics._estimate(trainer)

    monkeypatch.setattr(RenewedStatistics, "after_epoch", estimate)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 3)).eval()
    target = torch.randn(24, 3, 4, 4)
    settings = {"batch_norm": "mixed", "criterion": "last", "augment": lambda images: images + 0.1}
    adapted = adapt(network, target, **settings).model
    images = (target + 0.1).flatten(1)
    torch.testing.assert_close(adapted[1].running_mean, images.mean(0))
    torch.testing.assert_close(adapted[1].running_var, images.var(0))
