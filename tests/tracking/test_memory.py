"""The peak of a process is in megabytes, and stays when the memory was given back."""

import subprocess
import sys

PROGRAM = """
from gatehouse.tracking.performance import peak_memory_mb
before = peak_memory_mb()
held = b"x" * 200_000_000
del held
print(peak_memory_mb() - before)
"""


def test_the_peak_grows_by_what_was_held() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert 199 < float(told) < 203
