"""A person's approval or rejection of a verdict, if the policy asks for one."""
