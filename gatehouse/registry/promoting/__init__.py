"""Actions of a person or an approval pipeline on registered versions."""
