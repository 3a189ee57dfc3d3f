"""Small real artifacts for the registry: models, evaluations, and a gate that says what a test wants."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approval import approve, exempt, now
from gatehouse.registry.ledger import Ledger, State
from gatehouse.registry.stage import RegisterRequest, RegisterResult, ResolveRequest, register, resolve
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore

NAME = "delays"
POLICY = GatePolicy()
MANUAL = GatePolicy(approval="manual")


@dataclass
class Gate:
    """Publishes candidates and takes them through resolve, evaluate and register."""

    store: ArtifactStore
    training_set: str
    split: str

    @property
    def state(self) -> State:
        return Ledger(self.store, NAME).state()

    @property
    def kinds(self) -> list[str]:
        return [f"{record.kind} {record.alias}".strip() for record in Ledger(self.store, NAME).records()]

    def model(self, seed: int) -> str:
        history = [{"epoch": epoch, "log_loss": 0.6 - 0.01 * epoch, "roc_auc": 0.7} for epoch in range(3)]
        files = {"model.json": canonical_json({"seed": seed}), "history.json": canonical_json(history)}
        inputs, settings = {"training_set": self.training_set, "split": self.split}, {"seed": seed, "net": {"depth": 2}}
        model = self.store.publish("models", NAME, files, derived_from=inputs, configuration=settings)
        self.say_how_it_was_made(str(model), seed)
        return str(model)

    def say_how_it_was_made(self, model: str, seed: int = 0) -> None:
        """Record what registration asks of a model that was trained, once."""
        if self.store.measurements(model, "train"):
            return
        made = {"run": "r", "stage": "train", "attempt": 1, "by": "ada", "why": "the seasons changed"}
        self.store.append(f"provenance/{model}", made | {"code": "c" * 64, "key": "k" * 64})
        environment = {"hardware": "x86_64, two cores", "python": "3.13", "distributions": {"torch": "2.13"}}
        trained = {"stage": "train", "settings": {"seed": seed, "net": {"depth": 2}}, "environment": environment}
        self.store.append(f"measurements/{model}", trained)

    def approve(
        self,
        version: int = 0,
        action: Literal["approve", "reject"] = "approve",
        reason: str = "looks right",
        by: str = "",
        digest: str = "",
    ) -> None:
        approve(self.store, NAME, version, action, reason, digest or self.verdict_digest(version), by)

    def verdict_digest(self, version: int = 0) -> str:
        """Of the last verdict on a version, by default the one in staging; empty if there is none."""
        state = self.state
        chosen = state.version(version or state.staging)
        last = state.last_verdict(chosen.model) if chosen else None
        return last[1].short if last else ""

    def exempt(self, model: str, rule: str = "bar roc_auc", days: int = 7, reason: str = "a pilot") -> None:
        until = now().date() + timedelta(days)
        exempt(self.store, model, rule, until, reason, by="grace")

    def resolve(self, model: str, policy: GatePolicy | None = POLICY) -> str:
        return resolve(ResolveRequest(model_name=NAME, candidate=model, policy=policy), self.store).champion

    def evaluate(
        self,
        model: str,
        champion: str,
        good: bool = True,
        policy: GatePolicy = POLICY,
        verdict: str = "",
        rule: str = "bar roc_auc",
        severity: str = "refuse",
    ) -> str:
        """An evaluation of `model` against `champion` that keeps or breaks one `rule`, or says another `verdict`."""
        verdict = verdict or ("pass" if good else "refused")
        applied = {"name": rule, "expected": "at least 0.7", "observed": "0.6", "holds": good, "severity": severity}
        rules = [applied | {"inconclusive": verdict == "inconclusive"}]
        files = {
            "verdict.json": canonical_json({"verdict": verdict, "rules": rules}),
            "metrics.json": canonical_json({"candidate": {"roc_auc": 0.73, "log_loss": 0.49}}),
            "uncertainty.json": canonical_json({"intervals": {"candidate": {"roc_auc": [0.71, 0.75]}}}),
        }
        inputs = {"model": model, "training_set": self.training_set, "split": self.split}
        inputs |= {"champion": champion} if champion else {}
        settings = {"policy": identity_of(policy), "spec": {}}
        return str(self.store.publish("evaluations", NAME, files, derived_from=inputs, configuration=settings))

    def register(self, model: str, evaluation: str) -> RegisterResult:
        return register(RegisterRequest(model_name=NAME, model=model, evaluation=evaluation), self.store)

    def run(self, model: str, good: bool = True, policy: GatePolicy = POLICY) -> RegisterResult:
        return self.register(model, self.evaluate(model, self.resolve(model, policy), good, policy))


def make_gate(store: ArtifactStore, rows: str = "1,2") -> Gate:
    data = store.publish("datasets", "flights", {"data.csv": f"a,b\n{rows}\n"})
    snapshot = store.publish("snapshots", "raw", {"tables.json": "{}"}, derived_from={"flights": data})
    training_set = store.publish("training-sets", "delay", {"rows.csv": "x\n1\n"}, derived_from={"snapshot": snapshot})
    split = store.publish("splits", "delay", {"rows.json": "[0]"}, derived_from={"training_set": training_set})
    return Gate(store, str(training_set), str(split))
