"""What people and programs ask of Gatehouse: plain functions with typed results.

Command line, server and notebook are three doors to these functions. Each takes a store or a project first, and gives
a frozen dataclass, a model of pydantic, or a list of these. None prints, and none knows which door called it.
"""
