"""What ``run.sh`` has made so far, as Markdown: ``python -m benchmarks.gpu.summary OUT``."""

import json
import sys
from pathlib import Path

import torch

from benchmarks.tables import markdown


def main(words=None):
    (folder,) = map(Path, words or sys.argv[1:])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    short = ("short run", "accuracy at the start", "of the last epoch", "images/s of it")
    print(f"{device}, torch {torch.__version__}\n\n" + markdown(("step", ""), _steps(folder)))
    for path in sorted((folder / "logs").glob("speed-*.txt")):
        print(f"```\n{path.read_text()}```\n")
    print(markdown(short, _short_runs(folder), numbers=True))


def _steps(folder):
    """A row a step that ended; of one that failed also the last line of its log."""
    for path in sorted((folder / "ended").iterdir(), key=lambda path: path.stat().st_mtime):
        status = path.read_text().strip()
        outcome = "done"
        if status != "0":
            log = (folder / "logs" / f"{path.name}.txt").read_text(errors="replace")
            last = log.strip().rpartition("\n")[2].replace("|", r"\|")
            outcome = f"**failed** ({status}): {last}"
        yield path.name, outcome


def _short_runs(folder):
    for path in sorted((folder / "short").glob("*/metrics.jsonl")):
        epochs = [json.loads(text) for text in path.read_text().splitlines()]
        numbers = (epochs[0].get("accuracy"), *map(epochs[-1].get, ("accuracy", "images_per_second")))
        yield [path.parent.name, *("–" if number is None else f"{number:.2f}" for number in numbers)]


if __name__ == "__main__":
    main()
