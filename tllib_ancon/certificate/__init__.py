"""A user, a file or a list labels the images on which two models disagree, until it is decided which is better."""
