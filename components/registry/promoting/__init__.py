"""What a person, or an approval pipeline, does to registered versions."""
