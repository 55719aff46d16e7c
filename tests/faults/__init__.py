"""What a command left behind after a fault, compared with what it leaves without one."""
