"""The pieces of a contract: each counts the rows of some files that break the rules on rows."""

from collections.abc import Mapping

from gatehouse.data.piece_files import PieceFiles, file_batches
from gatehouse.data.validation.checks import rule_counts
from gatehouse.data.validation.contract import CONTRACT_FILE, Contract, published_contract
from gatehouse.data.validation.tables import Table, opened
from gatehouse.pieces.piece import ROWS, piece, run_pieces
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class RulesRequest(StageModel):
    """A contract, and the files to judge by it."""

    contract: str
    files: tuple[PieceFiles, ...]


class RulesResult(StageModel):
    """For each table of the request, the rows that break each rule, by its number; rules may be missing."""

    broken: tuple[dict[str, int], ...]


@piece
def judge_rows(request: RulesRequest, store: ArtifactStore) -> RulesResult:
    """Count the rows that break rules."""
    contract = published_contract(store.read_text(request.contract, CONTRACT_FILE))
    broken = list[dict[str, int]]()
    for files in request.files:
        manifest = store.manifest(files.dataset)
        rows = {entry.path: entry.rows or 0 for entry in manifest.files}
        paths = zip(store.paths(files.dataset, files.paths), map(rows.__getitem__, files.paths), strict=True)
        table = Table(files.table, manifest.columns, tuple(paths))
        with store.workspace() as workspace, opened([table], workspace) as connection:
            broken.append(rule_counts(connection, table, contract))
    return RulesResult(broken=tuple(broken))


def broken_rows(
    store: ArtifactStore, datasets: Mapping[str, str], reference: str, contract: Contract
) -> dict[str, dict[str, int]]:
    """By table, the rows that break each rule that can be counted in pieces; nothing if all files are one piece."""
    divided = file_batches(store, datasets, ROWS, contract.tables)
    if len(divided) < 2:
        return {}
    requests = [RulesRequest(contract=reference, files=batch) for batch in divided]
    by_table: dict[str, list[dict[str, int]]] = {}
    for request, result in zip(requests, run_pieces(store, [(judge_rows, each) for each in requests]), strict=True):
        for part, broken in zip(request.files, result.broken, strict=True):
            by_table.setdefault(part.table, []).append(broken)
    return {
        name: {rule: sum(part[rule] for part in parts) for rule in parts[0] if all(rule in part for part in parts)}
        for name, parts in by_table.items()
    }
