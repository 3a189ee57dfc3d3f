"""The page that explains the verdict on leakage."""

from typing import Any

from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Page
