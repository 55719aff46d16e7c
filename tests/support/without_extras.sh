#!/usr/bin/env bash
# What `pip install tllib-ancon` alone promises: check, adapt, predict and certify on a folder of images, and one line
# where something needs an extra. It runs in a folder of its own that is removed.
set -euo pipefail
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cd "$made"
python - <<'PYTHON'
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image

extras = ("pandas", "scipy", "sklearn", "matplotlib", "starlette", "transformers", "datasets", "ray")
assert [name for name in extras if find_spec(name)] == [], "an extra is installed"
generator = np.random.default_rng(0)
for number, brightness in enumerate((60, 180)):
    folder = Path("photos", f"class{number}")
    folder.mkdir(parents=True)
    for image in range(12):
        pixels = generator.normal(brightness, 40, (48, 48, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{image}.png")
torch.manual_seed(0)
torch.save(timm.create_model("resnet18", num_classes=2).state_dict(), "model.pth")
PYTHON

small="--image-size 32 --batch-size 8 --workers 0"
tllib-ancon check photos -a timm/resnet18 --checkpoint model.pth --out look $small
tllib-ancon adapt photos -a timm/resnet18 --checkpoint model.pth --log run --epochs 2 --threads 1 $small
tllib-ancon evaluate photos --checkpoint run --workers 0
tllib-ancon predict photos --checkpoint run --out predictions.csv --workers 0
tllib-ancon certify run --questions questions.csv
awk 'NR > 1 { sub(/,.*/, ""); $0 = $0 "," NR % 2 } { print }' questions.csv > answers.csv
tllib-ancon certify run --answers answers.csv
[ "$(wc -l < predictions.csv)" = 25 ]
[ -f run/certificate.json ]

refused() {
    local status=0 said
    said=$(tllib-ancon "$@" 2>&1) || status=$?
    echo "$said"
    [ $status = 2 ] && [ "$(wc -l <<< "$said")" = 1 ] && [[ $said == *"pip install 'tllib-ancon["* ]]
}
before=$(ls)
refused report run
refused demo
refused certify run --page
[ "$(ls)" = "$before" ]
echo "adapted, predicted and certified without an extra"
