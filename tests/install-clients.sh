#!/bin/sh
# Installs the real clients of other systems that tests/cli drives, each into an environment of its own below the folder $1.
# Their dependencies exclude ours and each other. An environment is kept as long as its line here does not change.
set -eu
cd "$(dirname "$0")/.."
folder=$1

environment() { # $1: its name; then the packages
    name=$1
    shift
    [ "$(cat "$folder/$name/packages" 2>/dev/null)" = "$*" ] && return
    .venv/bin/python -m venv --clear --without-pip "$folder/$name"
    # Most of a client's modules are never imported: compiling them would take half of the time.
    .venv/bin/python -m pip --python "$folder/$name/bin/python" install --quiet --disable-pip-version-check --no-compile "$@"
    echo "$*" >"$folder/$name/packages"
}

mkdir -p "$folder"
environment torchx torchx==0.7.0 kubernetes==36.0.3
environment kubeflow kubeflow==0.5.0 kubeflow-training==1.9.4
environment kuberay codeflare-sdk==0.40.1 # KubeRay's own client is not on PyPI; this has it
