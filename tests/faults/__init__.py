"""Random faults: kills, full disks, hostile files; and what each command makes of them."""
