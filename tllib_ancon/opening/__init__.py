"""Opening: a user's model and images, and how they fit together."""
