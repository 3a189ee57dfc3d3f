"""What is declared of any lakehouse table: its rows stand in the order of its files."""

from pydantic import model_validator

from gatehouse.data.snapshot.spec import TableSpec


class LakehouseTable(TableSpec):
    """A table of data files. Its rows stand in the order in which the files came into it, then of the rows in each."""

    @model_validator(mode="after")
    def _keeps_its_order(self) -> "LakehouseTable":
        if self.order_by and not self.sort_on_ingest:
            raise ValueError("order_by: rows stand in the order of the table's files; to have another, sort_on_ingest")
        return self
