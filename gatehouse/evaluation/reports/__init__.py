"""What the page of an evaluation draws."""
