"""The component `launch`."""
