"""TLLib's own scripts, and three methods after each of them."""
