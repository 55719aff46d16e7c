"""Pure functions of tensors: accuracy and calibration, criteria without labels, indicators, the certificate's test."""
