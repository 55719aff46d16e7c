"""Types of settings: what several settings accept."""

from typing import Annotated

from annotated_types import Ge, Gt, Interval

from tllib_ancon.config.settings import Flag

Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Interval(gt=0, le=1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Probability = Annotated[float, Interval(gt=0, lt=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
Number = Annotated[int, Ge(1)]
Count = Annotated[int, Interval(ge=0, le=4096)]
Threads = Annotated[int, Interval(ge=1, le=4096)]
Pixels = Annotated[int, Interval(ge=1, le=16_384)]
Width = Annotated[int, Interval(ge=1, le=1_000_000)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Area = tuple[Fraction, Fraction]
File = Annotated[str | None, Flag(metavar="FILE")]
