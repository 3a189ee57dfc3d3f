"""The component `retrieve_decisions`."""
