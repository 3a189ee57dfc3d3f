"""What training makes smaller."""
