"""Draws a pipeline: its tasks, what flows between them, and what they touch.

Everything in the picture is read from the code: tasks from the pipeline's plan, what flows from its specification,
what it reads and writes from its declaration.
"""

from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any

from google.protobuf import json_format

from gatehouse.pipelines.catalog import Pipeline
from gatehouse.store.stage import declared_stages

TOP, ROW, BOX_X, BOX_WIDTH, BOX_HEIGHT = 64, 94, 330, 252, 80
LANE_X, LANE = BOX_X + BOX_WIDTH + 26, 30
OUT_STEP = 13
LEAST_WIDTH = 1150
_LONGEST = 42
"""Characters of the names of stages that fit into one line of a box."""
_HEADING = "artifacts (solid) and values (dashed); a task takes those with a dot on its line"
_STYLE = """
.page{fill:#fff}.box{fill:#eef2f7;stroke:#8a99ad}.always{fill:#fff;stroke:#8a99ad;stroke-dasharray:4 3}
.title{fill:#1b2430;font-size:13px;font-weight:600}.stage{fill:#5a6878;font-size:11px}
.name{fill:#1b2430;font-size:12px}.note{fill:#5a6878;font-size:11.5px}
.lane,.wire{stroke:#2f6fb0;fill:none;stroke-width:1.6}.dot{fill:#2f6fb0}.head{fill:#2f6fb0}
.value .lane,.value .wire{stroke-dasharray:3 3}
.effect{stroke:#b3541e;fill:none;stroke-width:1.8}.effecthead{fill:#b3541e}.world{fill:#9a4512;font-size:12px}
@media (prefers-color-scheme:dark){
.page{fill:#11161d}.box{fill:#202a36;stroke:#6d7f94}.always{fill:#11161d;stroke:#6d7f94}
.title,.name{fill:#e6ecf3}.stage,.note{fill:#9fb0c3}
.lane,.wire{stroke:#6fb1f0}.dot,.head{fill:#6fb1f0}.effect{stroke:#f0a36b}.effecthead{fill:#f0a36b}.world{fill:#f3b283}}
"""


@dataclass
class Flow:
    """An artifact, or a value, that one task gives and others take, each by its row."""

    name: str
    source: int
    artifact: bool
    takers: list[int] = field(default_factory=list)


def flows(spec: dict[str, Any], row_of: dict[str, int]) -> list[Flow]:
    """Everything that flows between tasks, in order of the task that gives it, without reasons."""
    flow_of: dict[tuple[str, str], Flow] = {}
    tasks = next(component["dag"]["tasks"] for component in spec["components"].values() if "dag" in component)
    for task in sorted(tasks, key=lambda name: row_of[name]):
        inputs = tasks[task]["inputs"]
        for kind, key in (("artifacts", "outputArtifactKey"), ("parameters", "outputParameterKey")):
            for _, source in sorted(inputs.get(kind, {}).items()):
                produced = source.get(f"taskOutput{kind[:-1].title()}")
                if produced and produced[key] != "reasons":
                    giver = (produced["producerTask"], produced[key])
                    flow = flow_of.setdefault(giver, Flow(produced[key], row_of[giver[0]], kind == "artifacts"))
                    flow.takers.append(row_of[task])
    return sorted(flow_of.values(), key=lambda flow: (flow.source, not flow.artifact, min(flow.takers), flow.name))


def stages_of(pipeline: Pipeline) -> dict[str, list[str]]:
    """The stages that each task runs, by the task's name, in order."""
    tasks: dict[str, list[str]] = {}
    for task, stage, _ in pipeline.plan:
        tasks.setdefault(task, []).append(stage)
    return tasks


def drawing(pipeline: Pipeline, name: str) -> str:
    """A pipeline as SVG: a row for each task, in order, and a lane for each thing that flows."""
    spec = json_format.MessageToDict(pipeline.function.pipeline_spec)
    tasks = stages_of(pipeline)
    row_of = {task: row for row, task in enumerate(tasks)}
    graphs = [spec["root"], *(component for component in spec["components"].values() if "dag" in component)]
    titles = {key: task["taskInfo"]["name"] for graph in graphs for key, task in graph["dag"]["tasks"].items()}
    drawn = flows(spec, row_of)
    parts = [_task(row, stages, titles[task]) for row, (task, stages) in enumerate(tasks.items())]
    offsets: dict[int, int] = {}
    for lane, flow in enumerate(drawn):
        offset = offsets.get(flow.source, 0)
        offsets[flow.source] = offset + 1
        parts.append(_flow(lane, flow, offset))
    for row in range(len(tasks)):
        taken = [lane for lane, flow in enumerate(drawn) if row in flow.takers]
        if taken:
            parts.append(_intake(row, max(taken)))
    width = max(LANE_X + LANE * len(drawn) + 96, LEAST_WIDTH)
    height = TOP + ROW * len(tasks) + 62
    parts.append(_legend(height - 40))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">\n'
        f"<title>The {name} pipeline: its tasks, the artifacts that flow between them, and what they touch"
        f"</title>\n<style>{_STYLE}</style>\n"
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>\n'
        f'<text class="world" x="20" y="36">besides artifacts</text>'
        f'<text class="name" x="{BOX_X}" y="36">tasks, in order</text>'
        f'<text class="name" x="{LANE_X - 10}" y="36">{_HEADING}</text>\n'
        f"{body}\n</svg>\n"
    )


def _y(row: int) -> int:
    return TOP + ROW * row


def _task(row: int, stages: list[str], title: str) -> str:
    effects, y = [declared_stages()[stage].declared.effects for stage in stages], _y(row)
    judged = [effect for stage, effect in zip(stages, effects, strict=True) if not stage.startswith("require")]
    kind = "box" if all(effect.memo for effect in judged) else "always"
    parts = [
        f'<rect class="{kind}" x="{BOX_X}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        f'<text class="title" x="{BOX_X + 10}" y="{y + 18}">{escape(title)}</text>',
    ]
    for place, line in enumerate(wrap(", ".join(stages), _LONGEST)):
        parts.append(f'<text class="stage" x="{BOX_X + 10}" y="{y + 35 + 15 * place}">{escape(line)}</text>')
    label_y = y + 13
    touched = [(effect.reads, False) for effect in effects] + [(effect.writes, True) for effect in effects]
    for text, out in list(dict.fromkeys(touched)):
        if text:
            parts.append(_arrow(text, label_y, out))
            label_y += 18
    return "\n".join(parts)


def _arrow(text: str, y: int, out: bool) -> str:
    start, end = (BOX_X, BOX_X - 24) if out else (BOX_X - 24, BOX_X)
    tip = end + (5 if out else -5)
    label = f'<text class="world" x="{BOX_X - 32}" y="{y + 4}" text-anchor="end">{escape(text)}</text>'
    return (
        f'{label}<path class="effect" d="M{start} {y}H{tip}"/>'
        f'<path class="effecthead" d="M{end} {y}L{tip} {y - 4}V{y + 4}Z"/>'
    )


def _flow(lane: int, flow: Flow, offset: int) -> str:
    x, y = LANE_X + LANE * lane, _y(flow.source) + 22 + OUT_STEP * offset
    start = BOX_X + BOX_WIDTH
    bottom = _y(max(flow.takers)) + 9
    dots = "".join(f'<circle class="dot" cx="{x}" cy="{_y(row) + 9}" r="3"/>' for row in sorted(set(flow.takers)))
    kind = "artifact" if flow.artifact else "value"
    return (
        f'<g class="{kind}"><path class="wire" d="M{start} {y}H{x}"/>'
        f'<path class="lane" d="M{x} {y}V{bottom}"/>{dots}'
        f'<text class="name" x="{x + 7}" y="{y + 4}">{escape(flow.name.replace("_", " "))}</text></g>'
    )


def _intake(row: int, lane: int) -> str:
    x, y, edge = LANE_X + LANE * lane, _y(row) + 9, BOX_X + BOX_WIDTH
    return (
        f'<path class="wire" d="M{x} {y}H{edge + 5}"/><path class="head" d="M{edge} {y}L{edge + 6} {y - 4}V{y + 4}Z"/>'
    )


def _legend(y: int) -> str:
    return (
        f'<rect class="box" x="20" y="{y}" width="26" height="16" rx="4"/>'
        f'<text class="note" x="54" y="{y + 12}">a pure function: its result may come from the memo</text>'
        f'<rect class="always" x="370" y="{y}" width="26" height="16" rx="4"/>'
        f'<text class="note" x="404" y="{y + 12}">runs every time: it looks beyond artifacts, or ends the run</text>'
    )
