"""What ``adapt`` would assume of a model and images, a line for each fact, before anything is adapted."""
