"""What a model hub takes: the model card of an adaptation, and the model as its own library saves it."""

import json
import sys
from pathlib import Path

from torch import nn

from tllib_ancon import methods
from tllib_ancon.measures import indicators
from tllib_ancon.models.recipes import unrecorded_arguments
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.processes import on_main
from tllib_ancon.runtime.text import markdown, say, yaml
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.run import CARD, CERTIFICATE, RunDirectory

_METRICS = {"accuracy": ("accuracy (%)", ".2f"), "ece": ("ECE (15 bins)", ".4f")}
_SETTINGS = ("method", "criterion", "adapted", "epochs", "batch_size", "lr", "seed")


def card_of(recorded: Record, summary: Record, certificate: Record | None) -> str:
    """The model card of a run, by its ``config.json``, ``result.json`` and, where there is one, certificate."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    images = recorded["inputs"]["images"]
    target = next(iter(images))
    title = f"{target} by {summary['method']}"
    classes = [markdown(name) for name in recorded["inputs"]["classes"]]
    dataset = yaml(target)
    selected = summary["selected"]
    results = [
        EvalResult("image-classification", dataset, dataset, metric, selected[metric])
        for metric in _METRICS
        if metric in selected
    ]
    data = ModelCardData(
        library_name=recorded.get("network", {}).get("library", "tllib-ancon"),
        pipeline_tag="image-classification",
        tags=["domain-adaptation", "anchored-confidence"],
        model_name=yaml(title),
        eval_results=results or None,
    )
    lines = [f"---\n{data.to_yaml()}\n---\n", f"# {markdown(title)}\n"]
    lines.append(
        f"An image classifier that tllib-ancon adapted to {images[target]['number']:,} images of {markdown(target)} "
        f"{_labels_in_words(summary)}; its weights are those of epoch {summary['selected_epoch']}.\n"
    )
    lines.append("|  | source model | this model |\n|---|---|---|")
    lines += _rows_of_metrics(summary)
    for line in indicators.before_adapting(summary):
        lines.append(f"\n{line.capitalize()}.")
    lines.append(f"\nClasses: {', '.join(classes)}.\n")
    names = (*_SETTINGS, *methods.settings(recorded["method"]))
    lines.append(f"```json\n{json.dumps({name: recorded[name] for name in names if name in recorded}, indent=2)}\n```")
    if certificate is not None:
        lines += ["\n## Certificate\n", *certificate["words"]]

    return str(ModelCard("\n".join(lines) + "\n"))


def _labels_in_words(summary: Record) -> str:
    if "taught" in summary:
        return f"by labels of {summary['taught']} of them"
    return "without labels"


def _rows_of_metrics(summary: Record) -> list[str]:
    """Rows of the table: the score without labels that selects the epoch, and what labels measure."""
    start = summary["start"]
    selected = summary["selected"]
    criterion = summary["criterion"]
    metrics = {criterion: (f"{criterion}, without labels", ".4f"), **_METRICS}
    rows = []
    for metric, (title, form) in metrics.items():
        if metric in start and metric in selected:
            rows.append(f"| {title} | {start[metric]:{form}} | {selected[metric]:{form}} |")
    return rows


@on_main
def write_card(run: RunDirectory, summary: Record, certificate: Record | None = None) -> None:
    """Write the model card of a finished run, before ``certificate`` is written there. An edited card stays."""
    card = run.path / CARD
    file = run.path / CERTIFICATE
    certificate_before = None
    if file.is_file():
        certificate_before = json.loads(file.read_bytes())
    recorded = run.config()
    old = card_of(recorded, summary, certificate_before).encode()
    new = card_of(recorded, summary, certificate or certificate_before).encode()
    if card.is_file() and card.read_bytes() not in (old, new):
        say(f"{card} has changed since tllib-ancon wrote it and stays; remove it to get a new one", file=sys.stderr)
    else:
        write_bytes(card, new)


def save(model: nn.Module, card: str, folder: Path) -> None:
    save_pretrained = getattr(model, "save_pretrained", None)
    if save_pretrained is None and not hasattr(model, "pretrained_cfg"):
        raise UserError(
            f"{type(model).__name__} has no save_pretrained, as models of transformers, timm and "
            "huggingface_hub.PyTorchModelHubMixin do; use tllib-ancon export"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(card, encoding="utf-8")  # first: a mixin writes one where there is none
    if save_pretrained is not None:
        save_pretrained(folder)
    else:
        from timm.models import save_for_hf

        save_for_hf(model, str(folder), model_args=unrecorded_arguments(model), safe_serialization=True)
