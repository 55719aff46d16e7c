"""What every room needs: errors for users, text for terminals, processes of a launch, interruption by signals."""
