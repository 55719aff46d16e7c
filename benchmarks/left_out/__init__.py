"""Rules judged on what they were not chosen on: four families of source models and targets, one left out at a time."""
