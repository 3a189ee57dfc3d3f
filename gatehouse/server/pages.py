"""The pages for people: models, versions, search, comparison, curves, lineage, reports, and a form to approve."""

import hashlib
import hmac
import re
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse

from gatehouse.api import models, pipelines, runs
from gatehouse.errors import ConfigurationError
from gatehouse.registry.card import lineage_picture
from gatehouse.registry.explanation import compare, explain
from gatehouse.registry.naming import named
from gatehouse.reports.advice import advised
from gatehouse.reports.contents import has_page, rendered
from gatehouse.reports.page import STYLE, TEMPLATES, environment
from gatehouse.reports.page import Verdict as VerdictBox
from gatehouse.server.access import Access, Scope, Token
from gatehouse.server.problems import Problem, ProblemError, show_json
from gatehouse.server.routes import Name, Review, RunId, Server, Text
from gatehouse.store.reference import Reference

COOKIE = "gatehouse"
_SHUT = "frame-ancestors 'none'"
_PAGE = f"default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; {_SHUT}"
_REPORT = f"sandbox; {_SHUT}"
_MOST_FIELDS, _MOST_ROWS = 10, 200
_PROGRAMS = ("/v1/", "/health/", "/metrics", "/openapi.json")
router = APIRouter(include_in_schema=False)
Version = Annotated[int, InPath(ge=1, lt=10**9)]
Part = Annotated[str, InPath(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent."""
    try:
        return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise ProblemError(422, f"Expected a form of at most {_MOST_FIELDS} fields, found more.") from None


Form = Annotated[dict[str, str], Depends(_form)]


class Session:
    """A person's session: the server, and the token in the browser's cookie."""

    def __init__(self, request: Request, scope: Scope = "read") -> None:
        access: Access = request.app.state.access
        self.request = request
        self.secret = request.cookies.get(COOKIE, "")
        self.token: Token = access.admit(request, self.secret, scope)
        self.server: Server = request.app.state.server

    @property
    def stamp(self) -> str:
        """The value that a form must send back: only a page shown to this person contains it."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()

    def draw(self, template: str, **values: Any) -> HTMLResponse:
        """A page of this session."""
        return _drawn(template, session=self, **values)


def _drawn(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    html = environment().get_template(f"site/{template}").render(values, contents=[])
    return HTMLResponse(html, status, {"Content-Security-Policy": _PAGE})


def show(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """Show a problem: to a program as JSON, to a person as a page. Without login a person gets the login page."""
    if request.url.path.startswith(_PROGRAMS):
        return show_json(request, problem, headers)
    if problem.status == 401:
        return RedirectResponse(f"/login?next={quote(request.url.path)}", 303)
    page = _drawn("problem.html", problem.status, session=None, problem=problem)
    page.headers.update(headers)
    return page


@router.get("/style.css")
def style() -> Response:
    """The style of reports, with additions for the site."""
    return Response(STYLE + (TEMPLATES / "site" / "site.css").read_text(encoding="utf-8"), media_type="text/css")


@router.get("/login")
def ask_for_token(next: Annotated[str, Query(max_length=500)] = "/") -> HTMLResponse:  # its name in the address
    """Ask for a token."""
    return _drawn("login.html", session=None, after=next, wrong=False)


@router.post("/login")
def log_in(request: Request, form: Form) -> Response:
    """Keep a token in a cookie that scripts cannot read and other sites cannot send."""
    access: Access = request.app.state.access
    secret, after = form.get("token", "").strip(), form.get("next", "/")
    token = access.token_of(secret)
    here = after if after.startswith("/") and not after.startswith(("//", "/\\")) else "/"
    if token is None:
        return _drawn("login.html", 401, session=None, after=here, wrong=True)
    response = RedirectResponse(here, 303)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, secret, httponly=True, samesite="strict", secure=secure)
    return response


@router.post("/logout")
def log_out() -> Response:
    """Forget the token."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/")
def list_models(request: Request) -> HTMLResponse:
    """The models, and who is what."""
    session = Session(request)
    return session.draw("models.html", models=models.models(session.server.store))


@router.get("/compare")
def compare_versions(request: Request, first: Text = "", second: Text = "") -> HTMLResponse:
    """Two versions beside each other: every number with its interval, and what changed in what made them."""
    session, compared, wrong = Session(request), None, ""
    try:
        if first and second:
            compared = compare(session.server.store, first, second)
    except ConfigurationError as error:
        wrong = str(error)
    return session.draw("compare.html", first=first, second=second, compared=compared, wrong=wrong)


@router.get("/search")
def search(request: Request, kind: Literal["runs", "versions"] = "runs", where: Text = "", sort: Text = "") -> Response:
    """Tracked runs or versions that meet conditions, sorted, with a form to draw the curves of several runs."""
    session, rows, wrong = Session(request), None, ""
    store, conditions = session.server.store, [text for text in re.split(r"\s+and\s+", where.strip()) if text]
    try:
        searched = (conditions, sort, _MOST_ROWS)
        rows = (
            runs.search(runs.reader(store), *searched) if kind == "runs" else models.versions(store, "", "", *searched)
        )
    except ConfigurationError as error:
        wrong = str(error)
    return session.draw("search.html", kind=kind, where=where, sort=sort, found=rows, wrong=wrong)


@router.get("/curves")
def show_curves(request: Request, run: Annotated[list[str], Query(max_length=runs.MOST_RUNS)]) -> HTMLResponse:
    """The metrics of several runs on the same axes, shut off from this site."""
    store = Session(request).server.store
    page = runs.curves_page(runs.compare(runs.reader(store), run))
    return HTMLResponse(page, headers={"Content-Security-Policy": _REPORT})


@router.get("/models/{name}")
def show_model(request: Request, name: Name) -> HTMLResponse:
    """The versions of a model, and its ledger as a timeline."""
    session = Session(request)
    store = session.server.store
    versions, acts = models.versions(store, name).records, models.history(store, name)
    return session.draw("model.html", name=name, versions=versions[::-1], acts=acts[::-1])


@router.get("/models/{name}/{version}")
def show_version(request: Request, name: Name, version: Version) -> HTMLResponse:
    """A version: verdict, numbers, the seven answers, what happened to it, its lineage and its reports."""
    session = Session(request)
    store = session.server.store
    which = named(store, f"{name}:{version}")
    seen = explain(store, f"{name}:{version}")
    last = which.ledger.state().last_verdict(seen.model)
    verdict = last[1] if last else None
    identities = dict.fromkeys([seen.evaluation, seen.model, *(node.identity for node in reversed(seen.nodes))])
    box = None
    if verdict is not None:
        refused, exempted = verdict.verdict == "refused", verdict.exempted
        title = f"The gate says: {verdict.verdict}"
        if verdict.verdict == "pass":
            title = "The gate passed it by exemption" if exempted else "The gate passed it"
        champion = Reference.parse(verdict.champion).short if verdict.champion else "no champion"
        text = f"judged against {champion}; approval is {verdict.approval}"
        word = "refused" if refused else "pass" if verdict.verdict == "pass" and not exempted else "warn"
        box = VerdictBox(word, text, [*map(str, exempted), *advised(verdict.reasons)], title=title)
    waits = verdict is not None and verdict.admits and verdict.approval == "manual" and seen.stage != "archived"
    return session.draw(
        "version.html",
        seen=seen,
        verdict=box,
        picture=lineage_picture(seen.nodes, seen.edges, f"{name}:{version}"),
        reports=[identity for identity in identities if has_page(Reference.parse(identity))],
        champion=which.ledger.state().champion,
        signs=waits and session.token.may("promote"),
    )


@router.post("/models/{name}/{version}/{action}")
def review_version(request: Request, name: Name, version: Version, action: Part, form: Form) -> Response:
    """Approve or reject, with the reason of the form.

    Raises ProblemError if the form is not from a page of this server, gives no reason, or may not be given.
    """
    session = Session(request, "promote")
    if action not in ("approve", "reject"):
        raise ProblemError(404, f"expected approve or reject, found {action!r}.")
    if not hmac.compare_digest(form.get("stamp", "").encode(), session.stamp.encode()):
        raise ProblemError(
            403,
            "This form does not come from a page that this server showed you. Load the page again, and send its form.",
        )
    reason = form.get("reason", "").strip()[:2000]
    if not reason:
        raise ProblemError(422, f"To {action} needs a reason: expected some words, found none.")
    session.server.sign(
        session.token, name, action, Review(version=version, reason=reason, verdict=form.get("verdict", "")[:71])
    )
    return RedirectResponse(f"/models/{name}/{version}", 303)


@router.get("/reports/{kind}/{name}/{digest}")
def show_report(request: Request, kind: Part, name: Part, digest: Part) -> HTMLResponse:
    """The page of an artifact, shut off from this site."""
    session = Session(request)
    page = rendered(session.server.store, Reference.parse(f"{kind}/{name}/{digest}"))
    return HTMLResponse(page.read_text(), headers={"Content-Security-Policy": _REPORT})


@router.get("/runs")
def list_runs(request: Request) -> HTMLResponse:
    """The newest runs that were submitted."""
    session = Session(request)
    return session.draw("runs.html", runs=pipelines.newest(session.server.store))


@router.get("/runs/{run}")
def show_run(request: Request, run: RunId) -> HTMLResponse:
    """How far a run is."""
    session = Session(request)
    return session.draw("run.html", run=pipelines.run(session.server.store, run))
