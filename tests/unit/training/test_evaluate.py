"""An evaluation shows its scores, and for each class the accuracy and the most frequent mistake."""

import tllib_ancon
from tests.support.levels import UNSCALED, levels, write

EVALUATION = """\
accuracy             33.33 %
mean class accuracy  33.33 %
ECE (15 bins)        0.6667
scores without labels, over all 6 images:
infomax              1.0986
corr_c               0.0000
mean_entropy         0.0000
class  images  accuracy  most frequent mistake
deer        2    0.00 %  empty (2)
empty       2    0.00 %  deer (2)
fox         2  100.00 %"""


def test_evaluation_shows_each_class(tmp_path):
    write(tmp_path, ["empty", "deer", "fox"], 3)
    model = levels(3, class_names=["deer", "empty", "fox"])
    assert str(tllib_ancon.evaluate(model, tmp_path, **UNSCALED)) == EVALUATION
    assert (
        str(tllib_ancon.predict(model, tmp_path, **UNSCALED))
        == "6 images, 3 classes; most frequent: 1 (2), 0 (2), 2 (2)"
    )
