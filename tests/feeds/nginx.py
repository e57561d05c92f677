"""nginx in front of a server, as it is usually set up."""

from __future__ import annotations

from pathlib import Path

from tests.required_tools import require_tool


def nginx_command(folder: Path, port: int, upstream: int) -> list[str]:
    """The command for a proxy at this port. It is one process, so that ``kill -9`` leaves nothing of it."""
    nginx = require_tool("nginx", part="feeds behind nginx", install="apt-get install nginx-light")
    folder.mkdir()
    configuration = folder / "nginx.conf"
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    server = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}"
    configuration.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {places} client_max_body_size 8m; {server} }}\n"
    )
    return [nginx, "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
