"""
Grafana's new API, which has dashboards of the v2 model.

It is part of Grafana 12; with the version v2, of Grafana 13.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from jaxmon_dashboards.grafana.models import API_VERSION, GROUP, VERSION
from jaxmon_dashboards.grafana.resources import is_valid
from jaxmon_dashboards.grafana.session import GrafanaError, GrafanaSession, JsonResponse


_OK, _NOT_FOUND = 200, 404
_NAMESPACE = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_INSTEAD = rf"/namespaces/({_NAMESPACE})/dashboards/"


class NotServedError(GrafanaError):
    """This Grafana does not serve dashboards of the v2 model."""


class Apis:
    """
    Dashboards of the v2 model in one organisation, or stack, of a Grafana.

    What cannot change while a push runs is asked once.
    """

    def __init__(self, session: GrafanaSession) -> None:
        self._session = session
        self._served: list[str] | None = None
        self._namespace = ""

    def heed(self, response: JsonResponse) -> None:
        """Learn from *response* of the classic API where it says the dashboard is."""
        if found := re.search(_INSTEAD, response.text("message")):
            self._namespace = found[1]

    def get(self, uid: str) -> JsonResponse:
        """
        Return the response to a request for the resource *uid*.

        Raises:
            NotServedError: this Grafana does not have it in this model.
        """
        response = self._session.request("GET", f"{self._path()}/{quote(uid, safe='')}")
        if response.status == _OK and not is_valid(response.data, uid):
            msg = f"dashboard {uid}: Grafana returned no whole {API_VERSION} resource"
            raise GrafanaError(msg, status=response.status)
        return response

    def put(self, resource: dict[str, Any]) -> JsonResponse:
        """Return the response to writing *resource*: new if it has no version yet."""
        metadata = resource["metadata"]
        if "resourceVersion" not in metadata:
            return self._session.request("POST", self._path(), body=resource)
        path = f"{self._path()}/{quote(metadata['name'], safe='')}"
        return self._session.request("PUT", path, body=resource)

    def _path(self) -> str:
        served = self._versions()
        if VERSION not in served:
            found = self._session.redacted(", ".join(served)) or "none"
            msg = (
                f"this Grafana does not serve {API_VERSION} (it serves {found}), "
                "which takes Grafana 13 or later"
            )
            raise NotServedError(msg)
        namespace = self._namespace = self._namespace or self._own_namespace()
        return f"/apis/{API_VERSION}/namespaces/{namespace}/dashboards"

    def _versions(self) -> list[str]:
        """Return the versions of dashboards that this Grafana serves."""
        if self._served is None:
            try:
                response = self._session.request("GET", f"/apis/{GROUP}")
            except GrafanaError as error:
                # Grafana before 12 has a page that says so.
                if error.status != _NOT_FOUND:
                    raise
                return []
            self._served = _versions(response.data)
        return self._served

    def _own_namespace(self) -> str:
        """Return the namespace of the token's organisation."""
        response = self._session.request("GET", "/api/frontend/settings")
        found = response.text("namespace")
        return found if re.fullmatch(_NAMESPACE, found) else "default"


def _versions(group: Any) -> list[str]:
    versions = group.get("versions") if isinstance(group, dict) else None
    return [
        one["version"]
        for one in (versions if isinstance(versions, list) else ())
        if isinstance(one, dict) and isinstance(one.get("version"), str)
    ]
