"""What a user writes with each package: ``race`` takes a network and images, and gives the class probabilities."""
