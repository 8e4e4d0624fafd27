"""Requests of web frameworks, counted although the program marks none."""

import json

import pytest

from jaxmon.facts.status import HostVerdict, ProcessVerdict
from tests.helpers.processes import ROOT, run_python
from tests.helpers.sidecars import START, Worker, reading, status


APPS = """
import json, sys, time
import jax, jax.numpy as jnp
import jaxmon
from jaxmon.asgi import Middleware
from jaxmon.wsgi import WsgiMiddleware
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from tests.helpers import inside

serve = jax.jit(lambda x: x + 1)

def item(request):
    if request.path_params["n"] == 7:
        raise LookupError("seven")
    return PlainTextResponse(str(serve(jnp.ones(2))[0]))

def marked(request):
    with jaxmon.request("mine"):
        return PlainTextResponse("marked")

web = Flask("web")

@web.get("/things/<int:n>")
def thing(n):
    return str(n)

inner = Starlette(routes=[Route("/items/{n:int}", item)])
app = Starlette(routes=[
    Route("/items/{n:int}", item), Route("/marked", marked), Mount("/in", inner),
])
before = Starlette.__call__, Flask.__call__
agent = jaxmon.instrument(port=0, socket=False, **json.loads(sys.argv[1]))
client = TestClient(app, raise_server_exceptions=False)

def changed():
    return (Starlette.__call__, Flask.__call__) != before

def counted():
    found = {}
    for name, route in inside.overview(agent).get("requests", {}).items():
        for some in route["finished"]:
            key = f"{name} {some['outcome']}"
            found[key] = found.get(key, 0) + some["count"]
    return {key: count for key, count in found.items() if count}

deadline = time.monotonic() + 60
while agent.settings.frameworks and not changed() and time.monotonic() < deadline:
    time.sleep(0.01)
"""
ASKED = """
for n in (1, 2, 7):
    client.get(f"/items/{n}")
client.get("/in/items/1")
client.get("/nowhere")
web.test_client().get("/things/3").text
"""
SHOWN = """
recognised = inside.overview(agent).get("recognised", [])
found = counted()
jaxmon.uninstrument()
print(json.dumps([found, recognised, changed()]))
"""


@pytest.mark.parametrize("frameworks", [True, False])
def test_requests_are_counted_by_their_templates(preloaded_script, frameworks):
    """Each once, also below a mount; and nothing at all unless it is asked for."""
    settings = json.dumps({"frameworks": frameworks})
    found, recognised, changed = preloaded_script(APPS + ASKED + SHOWN, settings).json()

    assert changed is False
    if not frameworks:
        assert (found, recognised) == ({}, [])
        return
    assert found == {
        "/items/{n} success": 2,
        "/items/{n} error": 1,
        "/in/items/{n} success": 1,
        "unmatched client_error": 1,
        "/things/<int:n> success": 1,
    }
    assert recognised == ["Starlette", "Flask"]


FAILS = """
import math
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

def nan(request):
    return JSONResponse({"loss": math.nan})  # the line of nan

def handled(request):
    raise KeyError("no such model")

def busy(request):
    return PlainTextResponse("busy", status_code=503)

@web.get("/broken")
def broken():
    return str([][0])

async def sorry(request, error):
    return PlainTextResponse("sorry", status_code=500)

failing = Starlette(
    routes=[Route("/" + of.__name__, of) for of in (nan, handled, busy)],
    exception_handlers={KeyError: sorry},
)
mine = Starlette(routes=[Route("/mine", handled)])
mine.add_middleware(Middleware)
flask = web.test_client()
web.config["PROPAGATE_EXCEPTIONS"] = False
if len(sys.argv) > 2:
    web.wsgi_app, failing = WsgiMiddleware(web.wsgi_app), Middleware(failing)
failures = TestClient(failing, raise_server_exceptions=False)
statuses = [failures.get("/" + name).status_code for name in ("nan", "handled", "busy")]
response = flask.get("/broken")
assert "Internal Server Error" in response.text
statuses += [response.status_code]
statuses += [TestClient(mine, raise_server_exceptions=False).get("/mine").status_code]
found = {
    name: [of["error"], of["where"].rpartition(":")[0], of["message"]]
    for name, route in inside.overview(agent)["requests"].items()
    for of in route["failures"]
}
print(json.dumps([statuses, found]))
"""


@pytest.mark.parametrize("marked", [[], ["marked"]])
def test_what_a_framework_turns_into_a_response_is_named(preloaded_script, marked):
    """The exception, its message and the program's line; a status alone has none."""
    settings = json.dumps({"frameworks": True})
    statuses, found = preloaded_script(APPS + FAILS, settings, *marked).json()

    assert statuses == [500, 500, 503, 500, 500]
    name = "script.py"
    assert found["/nan"][0] == "ValueError (status 500)"
    assert "Out of range float values are not JSON compliant" in found["/nan"][2]
    assert found["/handled"][::2] == ["KeyError (status 500)", "no such model"]
    assert found["/busy"] == ["status 503", "", ""]
    assert found["/broken"][0] == "IndexError (status 500)"
    assert found["/broken"][2] == "list index out of range"
    for route in ("/nan", "/handled", "/broken"):
        assert found[route][1].endswith(name), found[route]


MARKED = """
client.get("/items/1")
client.get("/marked")
while changed() and time.monotonic() < deadline:
    time.sleep(0.01)
client.get("/items/1")
"""


def test_what_the_program_marks_takes_their_place(preloaded_script):
    """From its first mark on, and that request is counted as it marks it."""
    found, recognised, _ = preloaded_script(
        APPS + MARKED + SHOWN, '{"frameworks": true}'
    ).json()

    assert found == {"/items/{n} success": 1, "mine success": 1}
    assert recognised == []


OWN = """
web.wsgi_app = WsgiMiddleware(web.wsgi_app)
inner.add_middleware(Middleware)
TestClient(inner, raise_server_exceptions=False).get("/items/1")
TestClient(Middleware(app), raise_server_exceptions=False).get("/items/2")
web.test_client().get("/things/3").text
"""


def test_a_middleware_of_ours_in_the_program_counts_nothing_twice(preloaded_script):
    """Inside or around the application."""
    found, _, _ = preloaded_script(APPS + OWN + SHOWN, '{"frameworks": true}').json()

    assert found == {"/items/{n} success": 2, "/things/<int:n> success": 1}


RAISING = """
def call(client, path):
    try:
        client.get(path)
    except LookupError as error:
        return [type(error).__name__, *error.args]

plain = TestClient(app)
print(json.dumps(call(plain, "/items/7")))
jaxmon.uninstrument()
"""


def test_an_exception_passes_as_it_is(preloaded_script):
    """The server sees what the application raised."""
    result = preloaded_script(APPS + RAISING, '{"frameworks": true}').json()

    assert result == ["LookupError", "seven"]


SERVED = """
import json, time
import jax, jax.numpy as jnp
from fastapi import FastAPI
from starlette.testclient import TestClient
import jaxmon
from tests.helpers import inside

app = FastAPI()
double = jax.jit(lambda x: x * 2)

@app.get("/items/{n}")
def item(n: int):
    return float(double(jnp.ones(2))[0])

client, agent = TestClient(app), jaxmon.instrument()
deadline = time.monotonic() + (60 if agent.settings.frameworks else 0)
while True:
    client.get("/items/3")
    found = inside.overview(agent)
    if found.get("requests") or time.monotonic() > deadline:
        break
    time.sleep(0.05)
print(json.dumps([list(found.get("requests", {})), found.get("recognised", [])]))
"""


@pytest.mark.parametrize(
    ("environ", "counted"),
    [
        ({}, [["/items/{n}"], ["Starlette"]]),
        pytest.param(
            *({"JAXMON_FRAMEWORKS": "false"}, [[], []]), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_jaxmon_run_counts_them_by_default(tmp_path, run_dir, environ, counted):
    """Unless the variable says otherwise."""
    path = tmp_path / "served.py"
    path.write_text(SERVED)
    environ = {**environ, "PYTHONPATH": str(ROOT)}
    result = run_python(
        *("-m", "jaxmon", "run", "--no-tcp", str(path)), run_dir=run_dir, env=environ
    )

    assert result.json() == counted


def test_requests_that_were_recognised_are_said_to_be() -> None:
    """By the framework they are of."""
    worker = Worker()
    before = reading(worker, at=START)
    worker.requests(100)
    process = ProcessVerdict(recognised=("Starlette", "Flask"))
    found = status(worker, before=before, verdict=HostVerdict({"0": process})).answer
    said = "and none fails (of Starlette and Flask; recognised, not marked)."
    assert found.text.endswith(said)
