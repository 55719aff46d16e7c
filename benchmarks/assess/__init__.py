"""How far estimates of the accuracy without labels lie from it, and how often drift is found where there is none."""
