"""Posts the end of a run to the webhook once, whichever process finds it first: the exit task or `reconcile`."""

from collections.abc import Mapping

from gatehouse.operations.alerting.notice import Form, When, body_of
from gatehouse.operations.alerting.webhook import tell
from gatehouse.operations.ending.notice import notice_of
from gatehouse.operations.ending.outcome import Outcome
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.run import end_of, events
from gatehouse.store.store import ArtifactStore

VERSION = 1


def is_wanted(when: When, outcome: Outcome) -> bool:
    """Whether an end is to be sent to the webhook."""
    if when in ("always", "never"):
        return when == "always"
    return outcome.state != "succeeded" or (when == "warn" and bool(outcome.warnings))


def tell_end(
    store: ArtifactStore,
    run: str,
    outcome: Outcome,
    about: Mapping[str, str],
    owners: Mapping[str, str],
    form: Form = "generic",
) -> tuple[bool, str]:
    """Post the end of a run to the webhook; nothing is posted if this end was delivered before.

    A run that is tried again ends again, and each end is posted.

    Args:
        store: The artifact store with the run's record.
        run: The run.
        outcome: Its outcome.
        about: Project and pipeline.
        owners: Owner of each stage, by stage name; under "" the owner of all other stages.
        form: Format of the webhook.

    Returns:
        Whether it was delivered, and the webhook's answer.
    """
    found = [event for _, event in events(store, run)]
    notice = notice_of(store, run, outcome, found, about, owners)
    number = (end_of(store, run) or {"number": 1})["number"]
    key = sha256_bytes(f"end/{run}/{number}".encode())
    said = {"version": VERSION, "event": "run-ended", "run": run, "state": outcome.state, "stage": outcome.stage}
    said |= {"error": outcome.error, "message": "\n".join(notice.lines), "idempotency_key": key, **about}
    body = body_of(notice, form, {**said, "facts": dict(notice.facts), "links": dict(notice.links)})
    what = f"{about['pipeline']} {outcome.state}"
    told = tell(store, what, body, key, f"runs/{run}/told.{number}.json", state=outcome.state)
    return told.delivered, told.why
