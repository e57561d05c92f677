"""Who may use a gateway: CURVE keys, the access list with each key's rights, the ZAP authenticator."""

from penstock.aquifer.security.access import (
    ALL_RIGHTS,
    LOCAL,
    USUAL_RIGHTS,
    Access,
    AccessList,
    Caller,
    Client,
    Right,
    rights_in,
)
from penstock.aquifer.security.curve import CurveClient, CurveServer, check_bind
from penstock.aquifer.security.keys import (
    CurveKeys,
    PathLike,
    generate_keys,
    load_keys,
    load_public,
    save_keys,
)
from penstock.aquifer.security.zap import Authenticator

__all__ = [
    "ALL_RIGHTS",
    "LOCAL",
    "USUAL_RIGHTS",
    "Access",
    "AccessList",
    "Authenticator",
    "Caller",
    "Client",
    "CurveClient",
    "CurveKeys",
    "CurveServer",
    "PathLike",
    "Right",
    "check_bind",
    "generate_keys",
    "load_keys",
    "load_public",
    "rights_in",
    "save_keys",
]
