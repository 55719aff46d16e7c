"""What a model hub takes: the model card of an adaptation, and the model as its own library saves it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
from torch import nn

from tllib_ancon import methods
from tllib_ancon.measures import indicators as assessing
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import markdown, say, yaml
from tllib_ancon.training.devices import on_main
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.run import CARD, CERTIFICATE, RunDirectory

_METRICS = {"accuracy": ("accuracy (%)", ".2f"), "ece": ("ECE (15 bins)", ".4f")}
SETTINGS = ("method", "criterion", "adapted", "epochs", "batch_size", "lr", "seed")


def card_of(recorded: Mapping[str, Any], summary: Mapping[str, Any], certificate: Mapping[str, Any] | None) -> str:
    """The model card of a run, by its ``config.json``, ``result.json`` and, where there is one, certificate."""
    (name, images), *_ = recorded["inputs"]["images"].items()
    title, dataset = f"{name} by {summary['method']}", yaml(name)
    start, selected, criterion = summary["start"], summary["selected"], summary["criterion"]
    shown = {criterion: (f"{criterion}, without labels", ".4f"), **_METRICS}
    rows = [
        f"| {told} | {start[key]:{form}} | {selected[key]:{form}} |"
        for key, (told, form) in shown.items()
        if key in start and key in selected
    ]
    results = [
        huggingface_hub.EvalResult("image-classification", dataset, dataset, key, selected[key])
        for key in _METRICS
        if key in selected
    ]
    data = huggingface_hub.ModelCardData(
        library_name=recorded.get("network", {}).get("library", "tllib-ancon"),
        pipeline_tag="image-classification",
        tags=["domain-adaptation", "anchored-confidence"],
        model_name=yaml(title),
        eval_results=results or None,
    )
    settings = {key: recorded[key] for key in (*SETTINGS, *methods.settings(recorded["method"])) if key in recorded}
    labels = f"by labels of {summary['taught']} of them" if "taught" in summary else "without labels"
    lines = [
        f"---\n{data.to_yaml()}\n---\n\n# {markdown(title)}\n",
        f"An image classifier that tllib-ancon adapted to {images['number']:,} images of {markdown(name)} {labels}; "
        f"its weights are those of epoch {summary['selected_epoch']}.\n",
        "|  | source model | this model |\n|---|---|---|",
        *rows,
        *(f"\n{line.capitalize()}." for line in assessing.before_adapting(summary)),
        f"\nClasses: {', '.join(map(markdown, recorded['inputs']['classes']))}.\n",
        f"```json\n{json.dumps(settings, indent=2)}\n```",
        *([] if certificate is None else ["\n## Certificate\n", *certificate.get("words", ())]),
    ]
    return str(huggingface_hub.ModelCard("\n".join(lines) + "\n"))


@on_main
def write_card(run: RunDirectory, summary: Mapping[str, Any], certificate: Mapping[str, Any] | None = None) -> None:
    """Write the model card of a finished run, before ``certificate`` is written there. An edited card stays."""
    card, file = run.path / CARD, run.path / CERTIFICATE
    before = json.loads(file.read_bytes()) if file.is_file() else None
    old, new = (card_of(run.config(), summary, known).encode() for known in (before, certificate or before))
    if card.is_file() and card.read_bytes() not in (old, new):
        say(f"{card} has changed since tllib-ancon wrote it and stays; remove it to get a new one", file=sys.stderr)
    else:
        write_bytes(card, new)


def save(model: nn.Module, card: str, folder: Path) -> None:
    own = getattr(model, "save_pretrained", None)
    if own is None and not hasattr(model, "pretrained_cfg"):
        raise UserError(
            f"{type(model).__name__} has no save_pretrained, as models of transformers, timm and "
            "huggingface_hub.PyTorchModelHubMixin do; use tllib-ancon export"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(card, encoding="utf-8")  # first: a mixin writes one where there is none
    if own is not None:
        own(folder)
    else:
        from timm.models import save_for_hf

        save_for_hf(model, str(folder), safe_serialization=True)
