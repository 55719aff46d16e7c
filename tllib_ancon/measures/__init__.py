"""Pure functions of tensors: accuracy and calibration, criteria without labels, the certificate's test."""
