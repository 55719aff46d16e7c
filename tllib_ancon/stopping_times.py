"""Where :func:`labels_needed` and :func:`stopping_times` of :mod:`tllib_ancon.certification` were once."""

from tllib_ancon.certification import StoppingTimes, labels_needed, stopping_times

__all__ = ["StoppingTimes", "labels_needed", "stopping_times"]
