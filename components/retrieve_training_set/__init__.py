"""The component `retrieve_training_set`."""
