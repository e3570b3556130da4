"""Self-check of the webhooks: each replica calls them at the address that is registered, as the API server does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import secrets
import ssl
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from admission.model.errors import SluiceError
from webhooks.server import SELF_CHECK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

PERIOD: Final = 120.0
"""Seconds between two checks."""
RECHECK: Final = 10.0
"""Seconds between two checks after a failed one, so that the message disappears soon after a repair."""
CONFIRM: Final = 1.0
"""Seconds after which a failed check is repeated before it counts: the gate may be restarting or renew its
certificate."""
SERVICE_DELAY: Final = 30.0
"""Seconds before the first check of a Service, which leads to this pod only when the pod is ready."""
_ANSWER: Final = 5.0
"""Timeout of a call (s), that of the registered webhooks."""


class WebhookCheck:
    """Calls the registered webhook periodically; `fault` says what is wrong.

    The result does not make a replica unready: a Service has no endpoints without ready pods, so that a failed check
    could never succeed again. `registered` returns the clientConfig of the webhooks, None if there are none.
    """

    def __init__(self, registered: Callable[[], Awaitable[dict[str, Any] | None]]) -> None:
        self._registered = registered
        self._unresolved = ""
        """The Service of which it was logged that it cannot be checked from here."""
        self.fault = ""
        """One sentence that says what is wrong; empty: nothing, or it is not known yet."""

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Check until cancelled. Errors are logged, not raised."""
        first = True
        while True:
            try:
                config = await self._registered()
                if first and config is not None and "service" in config:
                    await sleep(SERVICE_DELAY)
                if await self._check(config):
                    await sleep(CONFIRM)
                    config = await self._registered()
                    self._note(await self._check(config))
                else:
                    self._note("")
            except SluiceError as error:  # the API server does not answer; the last result stays
                log.debug("the registered webhooks cannot be read: %s", error)
            except Exception:  # a defect, or a malformed configuration, must not end the process
                log.exception("the registered webhooks could not be checked, and are checked again")
            first = False
            await sleep(RECHECK if self.fault else PERIOD)

    def _note(self, fault: str) -> None:
        if fault and fault != self.fault:
            log.error("%s", fault)
        elif self.fault and not fault:
            log.info("the webhooks answer at their registered address again")
        self.fault = fault

    async def _check(self, config: dict[str, Any] | None) -> str:
        """Return what is wrong with the webhook that this clientConfig leads to; empty if it answers rightly."""
        if config is None:
            return ""
        service = config.get("service")
        url = str(config["url"]) if service is None else _url(service)
        try:
            wrong = await _call(url, _tls(config.get("caBundle") or ""))
        except aiohttp.ClientConnectorDNSError:
            if service:  # the API server finds Services without DNS, which not every pod or host can ask
                if url != self._unresolved:
                    log.info("the webhooks at %s cannot be checked from here: the name is not resolved", url)
                self._unresolved = url
                return ""
            wrong = "the host name cannot be resolved"
        if not wrong:
            return ""
        remedy = (
            f"check the Service {service['namespace']}/{service['name']} and network policies"
            if service
            else "check webhookUrl and webhookAddress, and firewalls in between"
        )
        return (
            f"the webhooks are registered at {url}, but {wrong}, so that the API server refuses Jobs with a queue "
            f"label: {remedy}"
        )


def _url(service: dict[str, Any]) -> str:
    return f"https://{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}{service.get('path', '')}"


def _tls(bundle: str) -> ssl.SSLContext:
    """Return a context that trusts the bundle (base64 of PEM) alone, with the checks that Go makes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
    except (ssl.SSLError, binascii.Error, ValueError):
        log.debug("the registered CA bundle is not PEM")  # no certificate is trusted then, which the call finds
    return context


async def _call(url: str, context: ssl.SSLContext) -> str:
    """Send a review of nothing in particular; return what is wrong. Raises ClientConnectorDNSError."""
    uid = secrets.token_hex(8)
    request = {
        "uid": uid,
        "operation": SELF_CHECK,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    timeout = aiohttp.ClientTimeout(total=_ANSWER)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json=review, ssl=context, allow_redirects=False) as response,
        ):
            answer = orjson.loads(await response.read())
            return "" if answer["response"]["uid"] == uid else _OTHER
    except aiohttp.ClientConnectorDNSError:
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        cause = error.certificate_error
        return f"the certificate there does not fit ({getattr(cause, 'verify_message', '') or cause})"
    except aiohttp.ClientConnectorSSLError:
        return "what answers there does not speak TLS"
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno  # asyncio writes a message of its own, with the address once more
        return f"nothing answers there ({os.strerror(number) if number else error.os_error})"
    except TimeoutError:
        return f"nothing answers there within {_ANSWER:g} s"
    except (aiohttp.ClientError, OSError):
        return "the connection breaks"
    except (ValueError, TypeError, KeyError):
        return _OTHER


_OTHER: Final = "something other than Sluice's webhooks answers there"
