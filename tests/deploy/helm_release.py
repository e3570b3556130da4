"""One action of Helm on the release `sluice`, in a process of its own: its connections end with it.

python helm_release.py KUBECONFIG ACTION CHART VALUES, the last as JSON; prints the history's states as JSON.
"""

from __future__ import annotations

import json
import sys

import helm_python as helm

NAMESPACE = "sluice-system"


def main() -> None:
    kubeconfig, action, chart, values = sys.argv[1:]
    with helm.Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as config:
        if action == "install":
            config.install(chart, "sluice", json.loads(values), namespace=NAMESPACE)
        elif action == "upgrade":
            config.upgrade(chart, "sluice", json.loads(values), namespace=NAMESPACE)
        elif action == "rollback":
            config.rollback("sluice", version=1)
        else:
            config.uninstall("sluice", timeout=100)
            return
        print(json.dumps([each["status"] for each in config.history("sluice")]))


if __name__ == "__main__":
    main()
