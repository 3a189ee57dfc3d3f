"""The component `retrieve_features`."""
