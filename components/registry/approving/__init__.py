"""A person's word on a verdict, where the policy asks for one."""
